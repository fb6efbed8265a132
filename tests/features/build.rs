//! Does nothing. Without a build script cargo does not choose features of build dependencies.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
