//! The modules of all crates, and which file uses what of which.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::module::{Declared, declared};
use super::tokens::tokens;

/// The crates: how code names them, and their folders.
const CRATES: [(&str, &str); 7] = [
    ("tilewright_layout", "layout"),
    ("tilewright_codegen", "codegen"),
    ("tilewright_kernels", "kernels"),
    ("tilewright_graph", "graph"),
    ("tilewright_megakernel", "megakernel"),
    ("tilewright_flow", "flow"),
    ("tilewright", ""),
];

/// From a file to a file, and the names that the first uses of the second.
pub type Arrows = BTreeMap<(String, String), BTreeSet<String>>;

struct Module {
    file: usize,
    parent: Option<usize>,
    root: usize,
    children: HashMap<String, usize>,
    declared: Declared,
}

/// The target of a path.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    Item { file: usize },
}

/// All modules of the workspace's libraries.
#[derive(Default)]
pub struct SourceTree {
    files: Vec<String>,
    modules: Vec<Module>,
    crates: HashMap<&'static str, usize>,
    /// Names that were resolved, by module and whether they end a path; a name in progress resolves
    /// to nothing.
    known: RefCell<HashMap<(usize, String, bool), Option<Target>>>,
}

impl SourceTree {
    /// Reads the libraries of the workspace at `root`.
    pub fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        for (name, folder) in CRATES {
            let library = Path::new(folder).join("src/lib.rs");
            let id = tree.modules.len();
            tree.crates.insert(name, id);
            tree.file(root, &library, Parent { module: None, root: id });
        }
        tree
    }

    /// The uses between files, with the names used.
    pub fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (id, module) in self.modules.iter().enumerate() {
            let private = module.declared.imports.iter().filter(|import| !import.is_public && import.name != "*");
            for path in private.map(|import| &import.path).chain(&module.declared.paths) {
                if let Some(Target::Item { file }) = self.resolve(id, path)
                    && file != module.file
                {
                    let arrow = (self.files[module.file].clone(), self.files[file].clone());
                    arrows.entry(arrow).or_default().insert(path.last().cloned().unwrap_or_default());
                }
            }
        }
        arrows
    }

    fn file(&mut self, root: &Path, path: &Path, parent: Parent) -> usize {
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.files.push(path.to_string_lossy().replace('\\', "/"));
        let stem = path.file_stem().unwrap_or_default();
        let folder = path.parent().unwrap_or(path);
        let is_front = ["lib", "main", "mod"].iter().any(|front| stem == *front);
        let below = if is_front { folder.to_owned() } else { folder.join(stem) };
        self.module(
            root,
            declared(&tokens(&text)),
            Place { file: self.files.len() - 1, beside: folder, below: &below, parent },
        )
    }

    fn module(&mut self, root: &Path, mut declared: Declared, place: Place) -> usize {
        let id = self.modules.len();
        let children = std::mem::take(&mut declared.children);
        let exported = std::mem::take(&mut declared.exported);
        self.modules.push(Module {
            file: place.file,
            parent: place.parent.module,
            root: place.parent.root,
            children: HashMap::new(),
            declared,
        });
        let parent = Parent { module: Some(id), root: place.parent.root };
        // Exported macros are names of the crate; the import leads to the file that defines them.
        for name in exported {
            let path = self.path_of(id).into_iter().chain([name.clone()]).collect();
            self.modules[place.parent.root].declared.imports.push(super::module::Import {
                name,
                path,
                is_public: true,
            });
        }
        for child in children {
            let below = place.below.join(&child.name);
            let child_id = match (child.inline, child.file) {
                (Some(inline), _) => {
                    self.module(root, inline, Place { file: place.file, beside: place.beside, below: &below, parent })
                }
                (None, Some(file)) => self.file(root, &place.beside.join(file), parent),
                (None, None) => {
                    let files: [PathBuf; 2] = [below.with_extension("rs"), below.join("mod.rs")];
                    let file = files.iter().find(|file| root.join(file).exists());
                    let file = file.unwrap_or_else(|| panic!("no file of {}", below.display()));
                    self.file(root, file, parent)
                }
            };
            self.modules[id].children.entry(child.name).or_insert(child_id);
        }
        id
    }

    /// The path of a module from its crate.
    fn path_of(&self, id: usize) -> Vec<String> {
        // A module is listed with its parent only after it is read: the way up is by ids.
        let mut path = Vec::new();
        let mut at = id;
        while let Some(parent) = self.modules[at].parent {
            path.push(format!("{MODULE}{at}"));
            at = parent;
        }
        path.push("crate".to_owned());
        path.reverse();
        path
    }

    fn resolve(&self, from: usize, path: &[String]) -> Option<Target> {
        let mut at = Target::Module(from);
        for (index, name) in path.iter().enumerate() {
            let Target::Module(module) = at else { return Some(at) };
            let is_last = index + 1 == path.len();
            let next = match name.as_str() {
                "crate" if index == 0 => Some(Target::Module(self.modules[from].root)),
                "self" if index == 0 => Some(at),
                "super" => self.modules[module].parent.map(Target::Module),
                _ => self.lookup(module, name, is_last),
            };
            let of_crate = || self.crates.get(name.as_str()).copied().map(Target::Module).filter(|_| index == 0);
            // What a macro defines is not seen: it is in the module's file.
            let unseen = || (index > 0).then_some(Target::Item { file: self.modules[module].file });
            at = next.or_else(of_crate).or_else(unseen)?;
        }
        Some(at)
    }

    fn lookup(&self, module: usize, name: &str, is_last: bool) -> Option<Target> {
        let key = (module, name.to_owned(), is_last);
        if let Some(target) = self.known.borrow().get(&key) {
            return *target;
        }
        self.known.borrow_mut().insert(key.clone(), None);
        let target = self.search(module, name, is_last);
        self.known.borrow_mut().insert(key, target);
        target
    }

    fn search(&self, module: usize, name: &str, is_last: bool) -> Option<Target> {
        let own = &self.modules[module];
        let item = || {
            let defined = own.declared.definitions.iter().any(|own| own == name);
            defined.then_some(Target::Item { file: own.file })
        };
        let child = || {
            let numbered = name.strip_prefix(MODULE).and_then(|id| id.parse().ok());
            own.children.get(name).copied().or(numbered).map(Target::Module)
        };
        let import = || {
            let named = own.declared.imports.iter().filter(|import| import.name == name);
            named.filter(|import| import.path != [name]).find_map(|import| self.resolve(module, &import.path))
        };
        let glob = || {
            let globs = own.declared.imports.iter().filter(|import| import.name == "*");
            globs.into_iter().find_map(|import| {
                let all = &import.path[..import.path.len() - 1];
                match self.resolve(module, all)? {
                    Target::Module(all) if all != module => self.lookup(all, name, is_last),
                    _ => None,
                }
            })
        };
        if is_last {
            item().or_else(import).or_else(child).or_else(glob)
        } else {
            child().or_else(import).or_else(item).or_else(glob)
        }
    }
}

/// The prefix of a path that names a module by its number.
const MODULE: &str = "module#";

#[derive(Clone, Copy)]
struct Parent {
    module: Option<usize>,
    root: usize,
}

/// The location of a module.
struct Place<'a> {
    file: usize,
    /// The folder of its file.
    beside: &'a Path,
    /// The folder of its children.
    below: &'a Path,
    parent: Parent,
}

/// The circles of files: each a set of files that use one another.
pub fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        next.entry(from).or_default().insert(to);
    }
    let reached = |from: &str| {
        let mut found = BTreeSet::new();
        let mut open: Vec<&str> = next.get(from).into_iter().flatten().copied().collect();
        while let Some(file) = open.pop() {
            if found.insert(file) {
                open.extend(next.get(file).into_iter().flatten());
            }
        }
        found
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|file| (*file, reached(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in reached.iter().filter(|(file, others)| others.contains(*file)) {
        let back = |other: &&&str| reached.get(**other).is_some_and(|others| others.contains(file));
        circles.insert(others.iter().filter(back).map(|file| (*file).to_owned()).collect::<BTreeSet<String>>());
    }
    circles.into_iter().collect()
}
