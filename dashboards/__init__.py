"""Results made into static HTML pages that work offline."""
