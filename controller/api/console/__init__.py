"""The console: a page in the browser that shows the quorum as one member sees it, and the files that it is made of."""
