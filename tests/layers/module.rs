//! A module as its source declares it: what it defines, imports and names.

use super::tokens::Token;

/// A path as written: `["crate", "ops", "Op"]`.
pub type Path = Vec<String>;

/// A `use` of one name.
#[derive(Debug)]
pub struct Import {
    /// The name that the module gives it; `*` for all names of a module.
    pub name: String,
    pub path: Path,
    /// Whether others can import it from this module.
    pub is_public: bool,
}

/// A child module.
#[derive(Debug)]
pub struct Child {
    pub name: String,
    /// The file of an attribute `path`.
    pub file: Option<String>,
    /// The module, where it is written in the file of its parent.
    pub inline: Option<Declared>,
}

/// The declarations of a module.
#[derive(Debug, Default)]
pub struct Declared {
    pub children: Vec<Child>,
    pub definitions: Vec<String>,
    /// Macros with `#[macro_export]`, which are names of the crate.
    pub exported: Vec<String>,
    pub imports: Vec<Import>,
    /// Paths in code; single names as well.
    pub paths: Vec<Path>,
}

const ITEMS: [&str; 9] = ["struct", "enum", "union", "trait", "type", "const", "static", "fn", "impl"];
const QUALIFIERS: [&str; 4] = ["async", "unsafe", "extern", "auto"];

/// Reads a module from its tokens; items for tests only are left out.
pub fn declared(tokens: &[Token]) -> Declared {
    let mut module = Declared::default();
    let mut at = 0;
    let mut attributes = Vec::new();
    let mut is_public = false;
    while at < tokens.len() {
        match &tokens[at] {
            Token::Attribute(text) => {
                attributes.push(text.as_str());
                at += 1;
                continue;
            }
            Token::Name(name) if name == "pub" => {
                is_public = true;
                at += 1;
                if tokens.get(at).is_some_and(|token| token.is('(')) {
                    at = after_group(tokens, at);
                }
                continue;
            }
            Token::Name(name) if QUALIFIERS.contains(&name.as_str()) && !tokens[at + 1..].is_empty() => {
                at += 1;
                continue;
            }
            Token::Literal => {
                at += 1;
                continue;
            }
            _ => {}
        }
        let end = after_item(tokens, at);
        if !attributes.iter().any(|text| is_for_tests(text)) {
            item(&tokens[at..end], &attributes, is_public, &mut module);
        }
        (at, is_public) = (end, false);
        attributes.clear();
    }
    module
}

/// Whether an attribute limits an item to tests.
fn is_for_tests(attribute: &str) -> bool {
    attribute.replace(' ', "").starts_with("[cfg(test)") || attribute.starts_with("[test]")
}

fn item(tokens: &[Token], attributes: &[&str], is_public: bool, module: &mut Declared) {
    let name = |at: usize| match tokens.get(at) {
        Some(Token::Name(name)) => Some(name.clone()),
        _ => None,
    };
    match name(0).as_deref() {
        Some("use") => uses(&tokens[1..], is_public, &mut module.imports),
        Some("mod") => {
            let of_path = |text: &&&str| text.replace(' ', "").starts_with("[path=");
            let file = attributes.iter().find(of_path).and_then(|text| text.split('"').nth(1)).map(str::to_owned);
            let inline = tokens[2].is('{').then(|| declared(&tokens[3..tokens.len() - 1]));
            module.children.push(Child { name: name(1).unwrap_or_default(), file, inline });
        }
        Some("macro_rules") => {
            let exported = attributes.iter().any(|text| text.starts_with("[macro_export"));
            if exported {
                module.exported.extend(name(2));
            }
            module.definitions.extend(name(2));
            body(&tokens[3..], module);
        }
        Some(keyword) if ITEMS.contains(&keyword) => {
            let skipped =
                usize::from(keyword == "const" && ["fn", "unsafe", "mut"].map(Some).contains(&name(1).as_deref()));
            let skipped = skipped + usize::from(name(1).as_deref() == Some("unsafe"));
            if keyword != "impl" {
                module.definitions.extend(name(1 + skipped));
            }
            body(&tokens[1..], module);
        }
        _ => body(tokens, module),
    }
}

/// The end of the item that starts at `at`.
fn after_item(tokens: &[Token], at: usize) -> usize {
    let by_semicolon = ["use", "type", "const", "static"].iter().any(|keyword| tokens[at].named(keyword))
        && !tokens.get(at + 1).is_some_and(|next| next.named("fn") || next.named("unsafe"));
    let mut end = at;
    while end < tokens.len() {
        match tokens[end] {
            Token::Mark(';') => return end + 1,
            Token::Mark('{') if !by_semicolon => return after_group(tokens, end),
            Token::Mark('(' | '[' | '{') => end = after_group(tokens, end),
            _ => end += 1,
        }
    }
    end
}

/// The end of the group that opens at `at`.
fn after_group(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0;
    for (offset, token) in tokens[at..].iter().enumerate() {
        match token {
            Token::Mark('(' | '[' | '{') => depth += 1,
            Token::Mark(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + offset + 1;
        }
    }
    tokens.len()
}

/// Reads the tree of a `use`.
fn uses(tokens: &[Token], is_public: bool, imports: &mut Vec<Import>) {
    fn tree(tokens: &[Token], mut at: usize, mut path: Path, is_public: bool, imports: &mut Vec<Import>) -> usize {
        let mut renamed = None;
        let mut is_tree = false;
        while at < tokens.len() {
            match &tokens[at] {
                Token::Name(name) if name == "as" => {
                    if let Some(Token::Name(name)) = tokens.get(at + 1) {
                        renamed = Some(name.clone());
                    }
                    at += 1;
                }
                Token::Name(name) => path.push(name.clone()),
                Token::Mark('*') => path.push("*".to_owned()),
                Token::Mark('{') => {
                    is_tree = true;
                    at += 1;
                    while at < tokens.len() && !tokens[at].is('}') && !tokens[at].is(';') {
                        at = tree(tokens, at, path.clone(), is_public, imports);
                        if tokens.get(at).is_some_and(|token| token.is(',')) {
                            at += 1;
                        }
                    }
                }
                Token::Mark(',' | '}' | ';') => break,
                _ => {}
            }
            at += 1;
        }
        if !is_tree && !path.is_empty() {
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let name = renamed.or_else(|| path.last().cloned()).unwrap_or_default();
            imports.push(Import { name, path, is_public });
        }
        at
    }
    tree(tokens, 0, Vec::new(), is_public, imports);
}

/// Collects what code names.
fn body(tokens: &[Token], module: &mut Declared) {
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        match &tokens[at] {
            Token::Attribute(text) if is_for_tests(text) => {
                at += 1;
                while matches!(tokens.get(at), Some(Token::Attribute(_))) {
                    at += 1;
                }
                if at < tokens.len() {
                    at = after_item(tokens, at);
                }
            }
            // `use<..>` lists what a type captures.
            Token::Name(name) if name == "use" && !tokens.get(at + 1).is_some_and(|next| next.is('<')) => {
                let end = after_item(tokens, at);
                uses(&tokens[at + 1..end], false, &mut module.imports);
                at = end;
            }
            Token::Name(_) => {
                let field = before.is_some_and(|before| before.is('.'))
                    && !at.checked_sub(2).is_some_and(|before| tokens[before].is('.'));
                let (path, end) = path(tokens, at);
                let is_call = tokens.get(end).is_some_and(|next| next.is('(') || next.is('!'));
                let is_type = path[0].starts_with(|first: char| first.is_uppercase());
                let is_defined = before.is_some_and(|before| before.named("fn"));
                if !field && before != Some(&Token::Separator) && !is_defined && (path.len() > 1 || is_call || is_type)
                {
                    module.paths.push(path);
                }
                at = end;
            }
            _ => at += 1,
        }
    }
}

/// The path that starts at `at`, and its end.
fn path(tokens: &[Token], mut at: usize) -> (Path, usize) {
    let mut path = Vec::new();
    while let Some(Token::Name(name)) = tokens.get(at) {
        path.push(name.clone());
        at += 1;
        if tokens.get(at) != Some(&Token::Separator) {
            break;
        }
        at += 1;
    }
    (path, at)
}
