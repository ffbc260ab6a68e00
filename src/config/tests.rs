//! What is wrong with a file is said all at once, each fault with its place and a way out.
