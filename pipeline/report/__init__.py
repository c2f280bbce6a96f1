"""report.html: what is shown (data, words, tables, plots) and how it is written."""
