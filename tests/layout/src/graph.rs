//! Modules and the imports between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use crate::circles;

/// The name under which [`Graph`] has code in the crate's root file. Names that the root only re-exports belong to
/// the module that defines them.
pub const ROOT: &str = "lib.rs";

/// One path in one module that names another module of the same crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// The top-level module whose code has the path.
    pub from: String,
    /// The top-level module that the path leads to.
    pub to: String,
    /// The source file, relative to the crate's `src`.
    pub file: PathBuf,
    /// The line in `file`, counted from 1.
    pub line: usize,
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, file, line } = self;
        write!(f, "{from} -> {to}  {}:{line}", file.display())
    }
}

/// The top-level modules of a crate and the imports between them.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// The modules, and [`ROOT`].
    pub modules: BTreeSet<String>,
    /// Every import, in the order of its file and line for each pair of modules.
    pub imports: Vec<Import>,
}

impl Graph {
    /// The pairs of modules with an import, each with its imports.
    pub fn arrows(&self) -> BTreeMap<(&str, &str), Vec<&Import>> {
        let mut arrows = BTreeMap::<_, Vec<_>>::new();
        for import in &self.imports {
            arrows.entry((&*import.from, &*import.to)).or_default().push(import);
        }
        arrows
    }

    /// The arrows that lie on a circle: both modules reach each other by imports.
    pub fn circular(&self) -> BTreeMap<(&str, &str), Vec<&Import>> {
        let mut arrows = self.arrows();
        let components = circles::components(arrows.keys().copied());
        arrows.retain(|(from, to), _| components.get(from) == components.get(to));
        arrows
    }
}
