"""Reports: an outline, sections that cite their source, and the document that they make."""
