//! The effect of `--out` and `--svg` on existing files, links, devices and FIFOs, and of an
//! interrupt.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::{catches_interrupts, fifo, tiny};

/// A picture, which takes no time.
fn show(path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(["layout", "show", "(4,8):(8,1)", "--svg"]).arg(path);
    command
}

/// A program of a model.
fn compile(config: &Path, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(["compile", "--target", "h100", "--config"]).arg(config).arg("--out").arg(out);
    command.output().expect("the program starts")
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The picture, as a new file gets it.
fn picture() -> Vec<u8> {
    let folder = folder();
    let path = folder.path().join("new.svg");
    assert!(show(&path).status().expect("runs").success());
    fs::read(path).expect("a picture")
}

#[test]
fn a_fifo_is_written_through_and_stays_one() {
    let folder = folder();
    let path = folder.path().join("fifo");
    fifo(&path);
    let mut child = show(&path).spawn().expect("starts");
    let found = fs::read(&path).expect("what comes through");
    assert!(child.wait().expect("ends").success());
    assert_eq!(found, picture());
    assert!(fs::symlink_metadata(&path).expect("it is there").file_type().is_fifo());
    assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 1, "no temporary file");
}

#[test]
fn a_device_is_written_through_and_a_link_to_it_stays() {
    let folder = folder();
    let link = folder.path().join("null");
    symlink("/dev/null", &link).expect("a link");
    assert!(show(&link).status().expect("runs").success());
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    assert!(fs::metadata("/dev/null").expect("it is there").file_type().is_char_device());
}

#[test]
fn standard_output_by_its_name_is_the_one_that_is_open() {
    let output = show(Path::new("/dev/stdout")).output().expect("runs");
    assert_eq!(output.stdout, picture());
    // A shell's redirection stays in force: what was written before and comes after is there too.
    let folder = folder();
    let path = folder.path().join("all");
    let script = r#"{ echo before; "$0" layout show '(4,8):(8,1)' --svg /dev/stdout; echo after; } > "$1""#;
    let script = Command::new("sh").arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_tilewright")).arg(&path).status();
    assert!(script.expect("a shell").success());
    let found = fs::read_to_string(path).expect("text");
    assert_eq!(found, format!("before\n{}after\n", String::from_utf8(picture()).expect("text")));
}

#[test]
fn links_are_followed_also_to_what_is_not_there_yet() {
    let folder = folder();
    fs::create_dir(folder.path().join("far")).expect("a folder");
    for (link, target) in [("old", "far/old.svg"), ("new", "far/new.svg"), ("twice", "new2")] {
        symlink(target, folder.path().join(link)).expect("a link");
    }
    symlink("far/twice.svg", folder.path().join("new2")).expect("a link");
    fs::write(folder.path().join("far/old.svg"), "old").expect("a file");
    for (link, target) in [("old", "far/old.svg"), ("new", "far/new.svg"), ("twice", "far/twice.svg")] {
        let link = folder.path().join(link);
        assert!(show(&link).status().expect("runs").success());
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink(), "{}", link.display());
        assert_eq!(fs::read(folder.path().join(target)).expect("the target"), picture());
    }
    assert_eq!(fs::read_dir(folder.path().join("far")).expect("lists").count(), 3, "no temporary file");
    let around = folder.path().join("around");
    symlink("around", &around).expect("a link");
    let output = show(&around).output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write"));
}

#[test]
fn a_file_keeps_its_mode_and_a_new_one_has_what_the_umask_leaves() {
    let folder = folder();
    for mode in [0o600, 0o640, 0o755] {
        let path = folder.path().join(format!("{mode:o}"));
        fs::write(&path, "old").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        assert!(compile(&tiny("config.json"), &path).status.success());
        let metadata = fs::metadata(&path).expect("it is there");
        assert_eq!(metadata.permissions().mode() & 0o777, mode);
        assert!(metadata.len() > 1000);
    }
    for (umask, mode) in [("022", 0o644), ("077", 0o600), ("002", 0o664)] {
        let path = folder.path().join(umask);
        let script = format!("umask {umask}; exec \"$0\" compile --target h100 --config \"$1\" --out \"$2\"");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_tilewright")).arg(tiny("config.json")).arg(&path);
        assert!(shell.stderr(Stdio::null()).status().expect("a shell").success());
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, mode, "umask {umask}");
    }
}

#[test]
fn what_may_not_be_written_is_refused_and_left_alone() {
    let folder = folder();
    let path = folder.path().join("kept");
    fs::write(&path, "old").expect("a file");
    // The work fails: the file is as it was.
    assert_eq!(compile(&tiny("tokenizer.json"), &path).status.code(), Some(2));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("a mode");
    // Root, which may write everything, is not refused.
    if fs::OpenOptions::new().write(true).open(&path).is_err() {
        let output = compile(&tiny("config.json"), &path);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write"));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "old");
    }
    let output = show(&folder.path().join("new/")).output().expect("runs");
    assert_eq!(output.status.code(), Some(2), "a path with a slash at its end is no file's");
    assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 1, "no temporary file");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_what_is_blamed() {
    let output = compile(&tiny("config.json"), Path::new("/dev/full"));
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(line, "error: cannot write `/dev/full`: No space left on device (os error 28)\n");
}

/// The work takes minutes; the interrupt comes as soon as there is a temporary file.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_leaves_no_temporary_file() {
    let folder = folder();
    let kept = folder.path().join("logits.safetensors");
    let made = folder.path().join("quantised");
    fs::write(&kept, "old").expect("a file");
    let ids = vec!["5"; 900].join(",");
    let logits = ["logits", "--device", "sim", "--prompt-ids", &ids, "--out"];
    let model = tiny("");
    for (args, out, code) in [(&logits[..], &kept, 130), (&["quantize", "--scheme", "w4a16", "--out"], &made, 130)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        let mut child = command.args(args).arg(out).arg("--model").arg(&model).spawn().expect("starts");
        let begun = || fs::read_dir(folder.path()).expect("lists").count() > 1 && catches_interrupts(child.id());
        while !begun() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs").success());
        assert_eq!(child.wait().expect("ends").code(), Some(code), "{args:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 1, "{args:?}: no temporary file");
    }
    assert_eq!(fs::read_to_string(kept).expect("it is there"), "old");
}

/// State and processor time of a process, in ticks of 10 ms.
fn work(id: u32) -> (String, u64) {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("the process is there");
    // The name, in parentheses, may have spaces.
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    (fields[0].to_owned(), fields[11].parse::<u64>().expect("ticks") + fields[12].parse::<u64>().expect("ticks"))
}

/// A simulated launch of a step takes seconds, and Ctrl-C ends it inside. What counts is the
/// processor's time, which other work on the machine does not change.
#[test]
fn an_interrupt_ends_a_simulated_launch_within_a_second_of_work() {
    let prompt = "In the beginning God created the heaven and the earth. ".repeat(4);
    for device in ["sim", "sim:1x2"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.args(["generate", "--device", device, "--json", "--prompt", &prompt, "--model"]).arg(tiny(""));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let id = child.id();
        // Loading takes less; launches follow each other from then on.
        while !catches_interrupts(id) || work(id).1 < 300 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = work(id).1;
        assert!(Command::new("kill").args(["-INT", &id.to_string()]).status().expect("kill runs").success());
        // A process that ended and was not waited for is there still.
        let after = loop {
            match work(id) {
                (state, ticks) if state == "Z" => break ticks,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let output = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(130), ""), "{device}");
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(object["interrupted"], serde_json::json!(true));
        assert!(after - before < 100, "{device}: {} ms of work after the interrupt", 10 * (after - before));
    }
}

/// A quantised checkpoint is a folder: SIGKILL leaves it staged and never at its place, and the
/// next output beside it, of whatever kind, removes it.
#[test]
fn a_killed_quantisation_leaves_no_folder_at_its_place_and_is_swept() {
    let folder = folder();
    let out = folder.path().join("quantised");
    let quantize = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.args(["quantize", "--scheme", "w4a16", "--out"]).arg(&out).arg("--model").arg(tiny(""));
        command
    };
    let names = || {
        let entries = fs::read_dir(folder.path()).expect("lists").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let mut killed = quantize().spawn().expect("starts");
    while names().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    killed.kill().expect("SIGKILL");
    killed.wait().expect("ends");
    let left = names();
    assert!(left.len() == 1 && left[0].starts_with(".tilewright-"), "{left:?}");
    assert!(show(&folder.path().join("a.svg")).status().expect("runs").success());
    assert_eq!(names(), ["a.svg"]);
    assert!(quantize().status().expect("runs").success());
    assert_eq!(names(), ["a.svg", "quantised"]);
    let mode = fs::metadata(&out).expect("a folder").permissions().mode();
    let plain = folder.path().join("plain");
    fs::create_dir(&plain).expect("makes");
    assert_eq!(mode, fs::metadata(&plain).expect("a folder").permissions().mode(), "as the umask leaves it");
}

/// SIGKILL leaves what was staged; the next output into the folder removes it.
#[test]
fn what_a_killed_process_left_is_swept_at_the_next_start() {
    let folder = folder();
    let out = folder.path().join("logits.safetensors");
    let ids = vec!["5"; 900].join(",");
    let args = ["logits", "--device", "sim", "--prompt-ids", &ids, "--out"];
    let count = || fs::read_dir(folder.path()).expect("lists").count();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        let child = command.args(args).arg(&out).arg("--model").arg(tiny("")).spawn().expect("starts");
        let before = count();
        while count() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        child
    };
    let mut killed = start();
    killed.kill().expect("SIGKILL");
    killed.wait().expect("ends");
    assert_eq!(count(), 1, "SIGKILL leaves the staged file");
    fs::write(folder.path().join(".tmpOther"), "another program's").expect("writes");
    assert!(show(&folder.path().join("a.svg")).status().expect("runs").success());
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).expect("lists").map(|e| e.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, [".tmpOther", "a.svg"]);
    // The staged file of a process that lives stays.
    let mut alive = start();
    assert!(show(&folder.path().join("b.svg")).status().expect("runs").success());
    assert_eq!(count(), 4);
    alive.kill().expect("SIGKILL");
    alive.wait().expect("ends");
}
