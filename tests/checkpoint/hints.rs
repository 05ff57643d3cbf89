//! Folders and files of other kinds: what the error says to do instead.

use std::fs;

use tilewright::checkpoint::Checkpoint;

use crate::folder::Folder;

/// The error of opening a path, the folder's path written as `DIR`.
fn error(folder: &Folder, path: &str) -> String {
    let error = Checkpoint::open(&folder.path(path), &mut |_| {}).expect_err("it is no checkpoint");
    error.to_string().replace(&*folder.path("").to_string_lossy(), "DIR/")
}

fn name(path: &str) -> String {
    Checkpoint::open(path.as_ref(), &mut |_| {}).expect_err("it is no checkpoint").to_string()
}

#[test]
fn a_name_on_the_hub() {
    insta::assert_snapshot!(name("someone/Some-Model_7B.v2"), @"checkpoint someone/Some-Model_7B.v2 is not a folder; if it is a model on the Hugging Face hub, `hf download someone/Some-Model_7B.v2 --local-dir DIR` makes a folder");
    for other in ["no/such/folder", "/abs/model", "./model", "../model", "model", "a/", "some one/model"] {
        assert!(name(other).ends_with("is not a folder; give the folder that holds config.json"), "{}", name(other));
    }
}

#[test]
fn a_file_of_weights_instead_of_its_folder() {
    let folder = Folder::synthetic();
    insta::assert_snapshot!(error(&folder, "model.safetensors"), @"checkpoint DIR/model.safetensors is not a folder; give the folder that holds it, with config.json and tokenizer.json");
    insta::assert_snapshot!(error(&folder, "model-Q4_K_M.gguf"), @"checkpoint DIR/model-Q4_K_M.gguf is not a folder; GGUF is not read; give the folder of the Hugging Face checkpoint that it was made of");
    insta::assert_snapshot!(error(&folder, "pytorch_model.bin"), @"checkpoint DIR/pytorch_model.bin is not a folder; pickles of PyTorch are not read, for they may run code; save the model as safetensors (`save_pretrained` of transformers does)");
    insta::assert_snapshot!(error(&folder, "config.json"), @"checkpoint DIR/config.json is not a folder; give the folder that holds config.json");
}

#[test]
fn a_folder_of_other_weights() {
    let folder = Folder::synthetic();
    folder.remove("model.safetensors");
    folder.write("pytorch_model-00001-of-00002.bin", "");
    insta::assert_snapshot!(folder.error(), @"folder DIR has neither model.safetensors nor model.safetensors.index.json; it has pytorch_model-00001-of-00002.bin: pickles of PyTorch are not read, for they may run code; save the model as safetensors (`save_pretrained` of transformers does)");
    let folder = Folder::empty();
    folder.write("model.gguf", "GGUF");
    insta::assert_snapshot!(folder.error(), @"file DIR/config.json does not exist; it has model.gguf: GGUF is not read; give the folder of the Hugging Face checkpoint that it was made of");
    let folder = Folder::synthetic();
    folder.remove("tokenizer.json");
    folder.write("tokenizer.model", "");
    insta::assert_snapshot!(folder.error(), @"file DIR/tokenizer.json does not exist; tokenizer.model beside it is not read; `save_pretrained` of transformers writes tokenizer.json");
}

#[test]
fn a_folder_of_the_hubs_cache() {
    let folder = Folder::empty();
    fs::create_dir_all(folder.path("snapshots/0a1b2c")).unwrap();
    insta::assert_snapshot!(folder.error(), @"file DIR/config.json does not exist; it is a folder of the hub's cache, give its snapshots/0a1b2c");
}

/// Whichever file it is; a pointer has some 130 bytes of text.
#[test]
fn a_pointer_of_git_lfs() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258\nsize 12345\n";
    for file in ["model.safetensors", "tokenizer.json", "config.json", "generation_config.json"] {
        let folder = Folder::synthetic();
        folder.write(file, pointer);
        let expected =
            format!("file DIR/{file} is a pointer of git-lfs, not the file itself; `git lfs pull` downloads it");
        assert_eq!(folder.error(), expected);
    }
}

/// A file of a tebibyte that the disk does not even hold.
#[cfg(unix)]
#[test]
fn a_small_file_that_is_not_small() {
    let folder = Folder::synthetic();
    fs::File::options().write(true).open(folder.path("tokenizer.json")).unwrap().set_len(1 << 40).unwrap();
    insta::assert_snapshot!(folder.error(), @"file DIR/tokenizer.json has 1099511627776 bytes; at most 268435456 are read of such a file");
}
