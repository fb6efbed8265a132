//! Tests of the codecs from outside: captures, corpora of other parsers, properties and bug classes.

mod bug_classes;
mod dissected_datagrams;
mod parser_corpora;
mod properties;
