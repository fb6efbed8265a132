//! What is counted of a crate.

use std::collections::BTreeMap;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

use crate::source::{Definition, Function, Place, Sources};

/// Methods that a type has at most before it is listed by name.
const METHODS: usize = 60;
/// Fields likewise.
const FIELDS: usize = 20;
/// Lines that a function has at most.
const LINES: usize = 80;
/// Parameters that a function has at most.
const PARAMETERS: usize = 5;

/// Modules whose types are data for the user of the crate: their fields are public, and configuration has many.
const DATA: &[&str] = &["config", "event", "question"];

/// Modules of the parts of an IKE SA, and of the SA itself. A method there that returns `&mut` opens a part to all who
/// call it. Elsewhere a container lends an element, a pointer what it points to, and the endpoint an entry of its table
/// together with the context.
const PARTS: &[&str] = &["channel", "exchange", "ike_sa"];

/// Figures of all crates: those that CONTRIBUTING.md has a rule for. The others are the engine's alone.
const OTHERS: &[&str] = &[
    "functions with over 80 lines",
    "silent returns",
    "texts as errors",
    "types with over 20 fields",
    "types with over 60 methods",
];

/// The floors of the engine, from the ground. A module imports modules of floors below its own alone.
pub(crate) const FLOORS: &[(&str, usize)] = &[
    ("endpoint", 11),
    ("ike_sa", 10),
    ("exchange", 9),
    ("duplicates", 8),
    ("wants", 8),
    ("peer", 7),
    ("child", 7),
    ("children", 7),
    ("queue", 7),
    ("channel", 6),
    ("env", 5),
    ("numbers", 5),
    ("shards", 5),
    ("event", 4),
    ("question", 3),
    ("config", 2),
    ("ids", 1),
    ("reason", 1),
    ("keys", 1),
    ("shares", 1),
    ("table", 1),
];

/// Modules that import nothing of their own floor or above. What they do is counted once more by itself, and has no
/// ceiling, so that one such import fails the test.
const WALLED: &[&str] = &["channel"];

/// The places that a figure counts, by its name.
pub(crate) type Places = BTreeMap<String, Vec<String>>;

/// What is counted of an engine: the crate whose floors are above.
pub(crate) fn of_engine(src: &Path) -> Places {
    let mut places = everything(src);
    count_imports(src, &mut places);
    places
}

/// What is counted of another crate.
pub(crate) fn of_other(src: &Path) -> Places {
    let mut places = everything(src);
    places.retain(|figure, _| OTHERS.contains(&figure.as_str()) || figure.contains(" of "));
    places
}

fn everything(src: &Path) -> Places {
    let sources = Sources::read(src);
    let mut places = Places::new();
    let mut count = |figure: &str, place: &Place, what: &str| {
        let place = format!("{}:{} {what}", place.file.display(), place.line);
        places.entry(figure.to_owned()).or_default().push(place);
    };
    let types = Types::of(&sources.types);
    let mut methods = BTreeMap::<_, [usize; 2]>::new();
    for function in &sources.functions {
        let Function { place, name, .. } = function;
        let inherent = function.of.as_deref().filter(|_| !function.of_trait);
        if let Some(of) = inherent.and_then(|of| types.find(of, place)) {
            count("methods", place, name);
            count_strange(&mut count, "methods", of, function);
            methods.entry(key(of)).or_default()[0] += 1;
        }
        let of = inherent.or(function.first.as_deref()).or(function.of.as_deref());
        if let Some(of) = of.and_then(|of| types.find(of, place)) {
            count("methods and functions", place, name);
            count_strange(&mut count, "methods and functions", of, function);
            methods.entry(key(of)).or_default()[1] += 1;
            if function.changes_first && has_mutable_reference(function.returns.clone()) {
                count("methods that return &mut", place, name);
                if place.module.first().is_some_and(|first| PARTS.contains(&first.as_str())) {
                    count("methods that return &mut of a part", place, name);
                }
            }
        }
        count_function(&mut count, function);
    }
    for item in &sources.types {
        let [methods, all] = methods.get(&key(item)).copied().unwrap_or_default();
        for _ in 0..methods {
            count(&format!("methods of {}", item.name), &item.place, "");
        }
        for _ in 0..all {
            count(&format!("methods and functions of {}", item.name), &item.place, "");
        }
        for _ in 0..item.fields {
            count(&format!("fields of {}", item.name), &item.place, "");
        }
        let is_data = item.place.module.first().is_some_and(|first| DATA.contains(&first.as_str()));
        if methods.max(all) > METHODS {
            count("types with over 60 methods", &item.place, &item.name);
        }
        if item.fields > FIELDS && item.place.module.first().is_none_or(|first| first != "config") {
            count("types with over 20 fields", &item.place, &item.name);
        }
        let folder = item.place.folder();
        for scope in item.seen_by.iter().filter(|_| !is_data) {
            if scope.len() < folder.len() || !scope.starts_with(&folder) {
                count("fields seen outside their folder", &item.place, &item.name);
            }
        }
    }
    places
}

fn count_imports(src: &Path, places: &mut Places) {
    let floor =
        |module: &str| FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor);
    let graph = ike_test_layout::read(src).unwrap_or_else(|error| panic!("{error}"));
    for import in &graph.imports {
        let from = floor(&import.from);
        // The root is above all floors, and lends its re-exports to all.
        if import.from == ike_test_layout::ROOT {
            continue;
        }
        let from = from.unwrap_or_else(|| panic!("{import}: {} is on no floor", import.from));
        if floor(&import.to).is_some_and(|to| to >= from) {
            let walled = WALLED.contains(&import.from.as_str());
            let of_walled = walled.then(|| format!("imports that go up from {}", import.from));
            for figure in ["imports that go up".to_owned()].into_iter().chain(of_walled) {
                places.entry(figure).or_default().push(import.to_string());
            }
        }
    }
}

/// A method away from its type.
fn count_strange(
    count: &mut impl FnMut(&str, &Place, &str),
    what: &str,
    of: &Definition,
    function: &Function,
) {
    let Function { place, name, .. } = function;
    if place.file != of.place.file {
        count(&format!("{what} outside the file"), place, name);
        // The folder that the type's file is in, or the one of its name.
        let folder = of.place.file.with_extension("");
        let beside = place.file.parent() == of.place.file.parent();
        if !beside && !place.file.starts_with(folder) {
            count(&format!("{what} outside the folder"), place, name);
        }
    }
}

fn count_function(count: &mut impl FnMut(&str, &Place, &str), function: &Function) {
    let Function { place, name, .. } = function;
    if function.parameters > PARAMETERS {
        count("functions with six parameters", place, name);
    }
    if function.members > PARAMETERS {
        count("functions with six parameters by members", place, name);
    }
    if function.lines > LINES {
        count("functions with over 80 lines", place, name);
    }
    for _ in 0..function.silent.plain {
        count("silent returns", place, name);
    }
    // A question mark in such a function is a silent return.
    let helper = usize::from(function.returns.to_string().replace(' ', "") == "Option<()>");
    for _ in 0..function.silent.plain + function.silent.others + helper {
        count("silent returns in any words", place, name);
    }
    if has_text_as_error(&function.returns) {
        count("texts as errors", place, name);
    }
}

/// The types of a crate by their names. Two may have one name.
struct Types<'a>(BTreeMap<&'a str, Vec<&'a Definition>>);

impl<'a> Types<'a> {
    fn of(types: &'a [Definition]) -> Self {
        let mut by_name = BTreeMap::<_, Vec<_>>::new();
        for item in types {
            by_name.entry(item.name.as_str()).or_default().push(item);
        }
        Self(by_name)
    }

    /// The type that is meant by a name at a place: of those with that name, the one that is nearest.
    fn find(&self, name: &str, place: &Place) -> Option<&'a Definition> {
        let shared = |item: &Definition| {
            let pairs = item.place.module.iter().zip(&place.module);
            let same = pairs.take_while(|(one, other)| one == other).count();
            (item.place.file == place.file, same)
        };
        self.0.get(name)?.iter().copied().max_by_key(|item| shared(item))
    }
}

/// Two types of one name differ in their places.
fn key(of: &Definition) -> (String, usize) {
    (of.place.file.display().to_string(), of.place.line)
}

/// `&mut` anywhere in a type, and iterators over such.
fn has_mutable_reference(of: TokenStream) -> bool {
    let tokens: Vec<_> = of.into_iter().collect();
    tokens.iter().enumerate().any(|(at, token)| match token {
        TokenTree::Ident(word) if word == "mut" => {
            // `&mut T` or `&'a mut T`, and not `*mut T`.
            at > 0 && !matches!(&tokens[at - 1], TokenTree::Punct(it) if it.as_char() == '*')
        }
        TokenTree::Ident(word) => word == "IterMut" || word == "ValuesMut",
        TokenTree::Group(group) => has_mutable_reference(group.stream()),
        _ => false,
    })
}

/// `Result<_, String>`, or with a `&'static str`.
fn has_text_as_error(returns: &TokenStream) -> bool {
    let text = returns.to_string().replace(' ', "");
    ["String>", "&'staticstr>", "&str>"]
        .iter()
        .any(|error| text.contains("Result<") && text.contains(&format!(",{error}")))
}
