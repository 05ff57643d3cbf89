//! What stands before a kernel's entry point.

use core::fmt::Write as _;

/// What stands before the entry point: declarations of functions, and texts.
#[derive(Default)]
pub(super) struct ModuleScope {
    functions: Vec<&'static str>,
    texts: Vec<String>,
}

impl ModuleScope {
    /// Declares a function once.
    pub fn declare(&mut self, function: &'static str) {
        if !self.functions.contains(&function) {
            self.functions.push(function);
        }
    }

    /// The number of a text that ends with a zero.
    pub fn text(&mut self, text: &str) -> usize {
        self.texts.push(text.to_owned());
        self.texts.len() - 1
    }

    /// The PTX, with the kernel's name before those of texts.
    pub fn emit(&self, kernel: &str) -> String {
        let mut out = String::new();
        for function in &self.functions {
            let _ = writeln!(out, "{function}");
        }
        for (index, text) in self.texts.iter().enumerate() {
            let bytes: Vec<String> = text.bytes().chain([0]).map(|byte| byte.to_string()).collect();
            let _ =
                writeln!(out, ".global .align 1 .b8 {kernel}_text{index}[{}] = {{{}}};", bytes.len(), bytes.join(", "));
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out
    }
}
