"""What is noted where a token does not fit, and how the line is corrected: a module for each kind
of mistake, and `order`, which says which of them is looked at first."""
