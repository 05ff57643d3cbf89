//! Each scheme of quantised weights: random modules written by a packer of the tests' own are read
//! back exactly.

use proptest::prelude::*;
use serde_json::{Value, json};
use tilewright::checkpoint::{Checkpoint, ModelConfig};
use tilewright_kernels::naive;
use tilewright_megakernel::weights::Weights;

use crate::folder::{Folder, Tensors};
use crate::quant_folder::{ANY, Draw, SMALL, Sizes, drawn, folder};
use crate::quant_pack::{Drawn, ROWS, Row, modelopt_nvfp4};

/// The weights of the definition, to the bit.
fn expected(row: &Row, drawn: &Drawn) -> Vec<f64> {
    (0..drawn.n * drawn.k).map(|at| (row.weight)(drawn, at / drawn.k, at % drawn.k)).collect()
}

fn weights(checkpoint: &Checkpoint, module: &str) -> Vec<f64> {
    let matrix = checkpoint.quantized(&format!("{module}.weight")).expect("the module is quantised");
    naive::dequantize::<f64>(&matrix)
}

/// Opens a folder of a scheme and compares all its modules.
fn check(row: &Row, sizes: Sizes, seed: u64) {
    let (folder, modules) = folder(row, sizes, seed);
    let checkpoint = folder.open().unwrap_or_else(|error| panic!("{} {sizes:?} {seed}: {error}", row.name));
    assert_eq!(checkpoint.quantized_modules().len(), 7);
    for (module, drawn) in &modules {
        assert!(weights(&checkpoint, module) == expected(row, drawn), "{} {sizes:?} {seed}: {module}", row.name);
        assert!(checkpoint.tensor(&format!("{module}.weight")).is_none(), "packed alone");
    }
}

#[test]
fn every_code_of_every_scheme_is_read() {
    let large = Sizes { hidden: 32, head_dim: 8, heads: 4, intermediate: 32, group: 16 };
    for row in &ROWS {
        check(row, large, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// K no multiple of the group, N not of the pack, groups in any order.
    #[test]
    fn what_a_packer_writes_is_read_exactly(
        which in 0..ROWS.len(), hidden in 1usize..70, half in 1usize..6, heads in 1usize..4, intermediate in 1usize..70,
        power in 0u32..6, seed: u64,
    ) {
        let row = &ROWS[which];
        let group = 1 << power;
        let sizes = match row.even {
            false => Sizes { hidden, head_dim: 2 * half, heads, intermediate, group },
            // Multiples of 8 and of the group everywhere.
            true => {
                let group = [8, 16, 32][group % 3];
                let up = |n: usize| n.next_multiple_of(group);
                Sizes { hidden: up(hidden), head_dim: group, heads, intermediate: up(intermediate), group }
            }
        };
        check(row, sizes, seed);
    }
}

#[test]
fn both_conventions_of_nvfp4_give_the_same_weights() {
    let row = ROWS.iter().find(|row| row.name == "nvfp4").unwrap();
    let module = "model.layers.0.mlp.down_proj";
    let (theirs, _) = folder(row, SMALL, 3);
    let replace = |tensors: &mut Tensors, d: &Drawn, second: f32| {
        tensors.retain(|name, _| !name.starts_with(module));
        modelopt_nvfp4(d, module, tensors, second);
    };
    let mut found = Vec::new();
    for second in [1.0f32 / 32.0, 32.0] {
        let drawn = drawn(row, [16, 24], 16, &mut Draw(5), ANY);
        let (modelopt, modules) = folder(row, SMALL, 3);
        modelopt.edit("config.json", |config| {
            let exclude = ["lm_head"];
            config["quantization_config"] =
                json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": exclude, "group_size": 16});
        });
        modelopt.edit_tensors(|tensors| {
            for (other, drawn) in &modules {
                tensors.retain(|name, _| !name.starts_with(other));
                modelopt_nvfp4(drawn, other, tensors, second);
            }
            replace(tensors, &drawn, second);
        });
        found.push(weights(&modelopt.open().unwrap(), module));
        theirs.edit_tensors(|tensors| {
            tensors.retain(|name, _| !name.starts_with(module));
            (row.pack)(&drawn, module, tensors);
            let global = tensors.get_mut(&format!("{module}.weight_global_scale")).unwrap();
            global.2 = (1.0 / second).to_le_bytes().to_vec();
        });
        assert_eq!(found.last().unwrap(), &weights(&theirs.open().unwrap(), module));
    }
    assert_ne!(found[0], found[1]);
}

/// The folder of a row whose `quantization_config` was changed.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Folder {
    let row = ROWS.iter().find(|row| row.name == name).unwrap();
    let (folder, _) = folder(row, SMALL, 7);
    folder.edit("config.json", |config| change(&mut config["quantization_config"]));
    folder
}

fn group(config: &mut Value) -> &mut Value {
    &mut config["config_groups"]["group_0"]
}

#[test]
fn what_is_not_understood_is_one_line_that_names_it() {
    let error = |name: &str, change: fn(&mut Value)| changed(name, change).error();
    insta::assert_snapshot!(error("awq", |c| c["version"] = json!("gemv")), @r#"configuration DIR/config.json cannot be used: key quantization_config.version is "gemv", which orders codes in a way that is not read; supported is "gemm""#);
    insta::assert_snapshot!(error("awq", |c| c["bits"] = json!(3)), @"configuration DIR/config.json cannot be used: key quantization_config.bits is 3, which is a width of codes that is not read; supported is 4");
    insta::assert_snapshot!(error("gptq v1", |c| c["checkpoint_format"] = json!("marlin")), @r#"configuration DIR/config.json cannot be used: key quantization_config.checkpoint_format is "marlin", which orders codes in a way that is not read; supported is gptq, gptq_v2 or gptq_p"#);
    insta::assert_snapshot!(error("gptq v1", |c| c["quant_method"] = json!("bitsandbytes")), @r#"configuration DIR/config.json cannot be used: key quantization_config.quant_method is "bitsandbytes", which stores weights in a way that is not read; supported is awq, gptq, compressed-tensors, fp8, fbgemm_fp8, modelopt or mxfp4"#);
    insta::assert_snapshot!(error("fp8, blocks", |c| c["weight_scale_semantics"] = json!("inverse")), @r#"configuration DIR/config.json cannot be used: key quantization_config.weight_scale_semantics (value "inverse") is not known, so it may change the mathematics; remove it if it does not"#);
    insta::assert_snapshot!(error("pack-quantized", |c| c["format"] = json!("marlin-24")), @r#"configuration DIR/config.json cannot be used: key quantization_config.format is "marlin-24", which stores weights in a way that is not read; supported is pack-quantized, int-quantized, naive-quantized, float-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized or mxfp8-quantized"#);
    insta::assert_snapshot!(error("pack-quantized", |c| group(c)["weights"]["num_bits"] = json!(3)), @r#"configuration DIR/config.json cannot be used: key quantization_config.config_groups.group_0.weights.num_bits is 3, which with type int is not a width of codes that format "pack-quantized" is read with; supported is int of 4 or 8 bits, float of 4 or 8, as the format has it"#);
    insta::assert_snapshot!(error("pack-quantized", |c| group(c)["targets"] = json!(["re:("])), @r#"configuration DIR/config.json cannot be used: key quantization_config.config_groups.group_0.targets is "re:(", which is not a regular expression, or too large; supported is names, classes, or re: and one"#);
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let error = |name: &str, change: fn(&mut Tensors)| {
        let folder = changed(name, |_| {});
        folder.edit_tensors(change);
        folder.error()
    };
    fn of<'t>(tensors: &'t mut Tensors, suffix: &str) -> &'t mut (String, Vec<usize>, Vec<u8>) {
        tensors.get_mut(&format!("model.layers.0.self_attn.q_proj.{suffix}")).unwrap()
    }
    insta::assert_snapshot!(error("awq", |t| drop(t.remove("model.layers.0.self_attn.q_proj.qzeros"))), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_proj.qzeros is missing; AWQ gemm of 4 bits needs it, with shape [2, 2]");
    insta::assert_snapshot!(error("awq", |t| of(t, "qweight").1.reverse()), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_proj.qweight in DIR/model.safetensors has shape [2, 16]; AWQ gemm of 4 bits needs [16, 2]");
    insta::assert_snapshot!(error("fp8, blocks", |t| of(t, "weight").2[5] = 0x7f), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_proj.weight in DIR/model.safetensors cannot be used: code at row 0, place 5 is 0x7f, which is NaN; weights are numbers");
    insta::assert_snapshot!(error("fp8, blocks", |t| of(t, "weight").0 = "I8".into()), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_proj.weight in DIR/model.safetensors has elements of i8; fp8 by blocks with weight_scale_inv stores f8e4m3 there");
    insta::assert_snapshot!(error("gptq v2, act-order", |t| of(t, "g_idx").2[0] = 9), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_proj.g_idx in DIR/model.safetensors puts column 0 in group 9; there are 2 groups");
    insta::assert_snapshot!(error("gptq v2, act-order", |t| of(t, "g_idx").2.fill(0)), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_proj.g_idx in DIR/model.safetensors puts 16 columns in group 0; it holds 8");
    insta::assert_snapshot!(error("pack-quantized", |t| of(t, "weight_shape").2[0] = 3), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_proj.weight_shape in DIR/model.safetensors says the weight is [3, 16]; by config.json it is [16, 16]");
    insta::assert_snapshot!(error("nvfp4", |t| of(t, "weight_global_scale").2.fill(0)), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_proj.weight_global_scale in DIR/model.safetensors is 0; it must be a finite number above 0");
    insta::assert_snapshot!(error("mxfp4", |t| of(t, "weight_scale").2[0] = 255), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_proj.weight_scale in DIR/model.safetensors has a scale of NaN; it must be finite and not negative");
    let negative = error("pack-quantized", |t| {
        let scales = &mut of(t, "weight_scale").2;
        *scales.last_mut().unwrap() |= 0x80;
    });
    assert!(negative.contains("q_proj.weight_scale") && negative.contains("has a scale of -"), "{negative}");
}

#[test]
fn symmetric_gptq_has_the_zero_points_that_it_says() {
    let row = ROWS.iter().find(|row| row.name == "gptq v1").unwrap();
    let (folder, _) = folder(row, SMALL, 7);
    folder.edit("config.json", |config| config["quantization_config"]["sym"] = json!(true));
    let error = folder.error();
    assert!(error.contains("has a zero point of") && error.contains("with symmetric codes each is 8"), "{error}");
    folder.edit_tensors(|tensors| {
        tensors.iter_mut().filter(|(name, _)| name.ends_with("qzeros")).for_each(|(_, tensor)| tensor.2.fill(0x77));
    });
    assert_eq!(folder.open().unwrap().quantized_modules().len(), 7);
}

#[test]
fn groups_name_modules_by_name_expression_and_class() {
    let folder = changed("pack-quantized", |config| {
        let weights = group(config)["weights"].clone();
        let mut int8 = weights.clone();
        int8["num_bits"] = json!(8);
        config["config_groups"] = json!({
            "all": {"targets": ["Linear"], "weights": weights},
            "mlp": {"targets": ["re:.*mlp\\..*"], "weights": int8, "format": "pack-quantized"},
        });
        config["ignore"] = json!(["lm_head", "re:.*k_proj$", "model.layers.0.self_attn.v_proj"]);
    });
    let error = folder.error();
    assert!(error.contains("gate_proj.weight_packed") && error.contains("pack-quantized of 8 bits"), "{error}");
    assert!(error.contains("tensor model.layers.0.self_attn.k_proj.weight is missing"), "ignored, so dense: {error}");
    assert!(!error.contains("q_proj"), "{error}");
    let folder = changed("pack-quantized", |config| {
        let weights = group(config)["weights"].clone();
        config["config_groups"] = json!({"a": {"targets": ["re:.*mlp.*"], "weights": weights},
            "b": {"targets": ["re:.*_proj"], "weights": null}});
    });
    assert!(folder.error().contains("they must agree"), "{}", folder.error());
}

/// An expression that gives up on a module may have matched it: the checkpoint is refused, and not
/// read as if the expression did not match.
#[test]
fn a_checkpoint_whose_pattern_backtracks_without_end_is_refused() {
    const ENDLESS: &str = "((?=.).|(?=.).)*!";
    type Change = fn(&mut Value);
    let places: [(&str, Change); 3] = [
        ("pack-quantized", |config| config["ignore"] = json!(["lm_head", format!("re:{ENDLESS}")])),
        ("pack-quantized", |config| group(config)["targets"] = json!(["Linear", format!("re:{ENDLESS}")])),
        ("gptq v1", |config| config["dynamic"] = json!({format!("-:{ENDLESS}"): {}})),
    ];
    for (name, change) in places {
        let error = changed(name, change).error();
        assert!(error.contains("takes more than 2000 steps back for module model.layers.0."), "{name}: {error}");
        assert_eq!(error.lines().count(), 1, "{name}: {error}");
    }
}

#[test]
fn a_file_beside_the_configuration_says_the_same_or_is_refused() {
    let folder = changed("gptq v1", |_| {});
    let mut alone = serde_json::from_slice::<Value>(&folder.read("config.json")).unwrap()["quantization_config"].take();
    alone.as_object_mut().unwrap().remove("quant_method");
    folder.write("quantize_config.json", alone.to_string());
    assert!(folder.open().is_ok(), "the same twice");
    folder.edit("config.json", |config| drop(config.as_object_mut().unwrap().remove("quantization_config")));
    assert_eq!(folder.open().unwrap().quantized_modules().len(), 7);
    let read = ModelConfig::of_folder(folder.path("config.json").parent().unwrap()).unwrap();
    assert_eq!(read.quantization.map(|plan| plan.len()), Some(7), "without the weights");
    folder.edit("config.json", |config| {
        config["quantization_config"] = json!({"quant_method": "gptq", "bits": 8, "group_size": 8})
    });
    insta::assert_snapshot!(folder.error(), @"configuration DIR/quantize_config.json cannot be used: key quantization_config of config.json is model.layers.0.mlp.down_proj as GPTQ of 8 bits with scales by Group(8) and quantize_config.json is model.layers.0.mlp.down_proj as GPTQ of 4 bits with scales by Group(8); they must agree");
}

#[test]
fn what_a_checkpoint_wants_and_does_not_get_is_said() {
    let folder = changed("pack-quantized", |config| {
        group(config)["input_activations"] = json!({"num_bits": 8, "type": "int"});
        config["kv_cache_scheme"] = json!({"num_bits": 8, "type": "float"});
    });
    folder.edit_tensors(|tensors| {
        tensors.insert("model.layers.0.self_attn.k_scale".into(), ("F32".into(), vec![1], 0.5f32.to_le_bytes().into()));
        tensors.insert("model.layers.0.self_attn.q_proj.input_scale".into(), ("F32".into(), vec![1], vec![0; 4]));
        tensors.insert("model.layers.0.self_attn.q_proj.bias".into(), ("F16".into(), vec![16], vec![0; 32]));
    });
    let notes = [
        "the checkpoint wants keys and values quantised; they are kept in bf16 or f32 unless --kv fp8 is given",
        "the checkpoint wants activations quantised as well; they are computed in bf16 or f32 here",
        "the checkpoint has scales of quantised keys and values; they are used with --kv fp8",
    ];
    assert_eq!(folder.open().unwrap().notes(), notes);
    folder.edit_tensors(|tensors| tensors.get_mut("model.layers.0.self_attn.q_proj.bias").unwrap().2[3] = 1);
    assert!(folder.error().contains("q_proj.bias (f16, shape [16])"), "a bias that is not 0 is not left out");
}

/// Scales of keys and values under the name of compressed-tensors are those of ModelOpt and vLLM.
#[test]
fn output_scales_of_keys_and_values_are_their_cache_scales() {
    for name in ["int-quantized", "pack-quantized", "float-quantized, a tensor"] {
        let folder = changed(name, |config| config["kv_cache_scheme"] = json!({"num_bits": 8, "type": "float"}));
        let scale = |value: f32| ("F32".to_owned(), vec![1], value.to_le_bytes().to_vec());
        let put = |tensor: &str, value: f32| {
            folder.edit_tensors(|tensors| {
                tensors.insert(format!("model.layers.0.self_attn.{tensor}"), scale(value));
            });
        };
        put("k_proj.output_scale", 0.25);
        put("v_proj.output_scale", 0.5);
        let checkpoint = folder.open().expect(name);
        assert_eq!(checkpoint.cache_scale("layers.0.k"), Some(0.25), "{name}");
        assert_eq!(checkpoint.cache_scale("layers.0.v"), Some(0.5), "{name}");
        put("k_proj.k_scale", 0.25);
        assert!(folder.open().is_ok(), "two names of one value");
        put("k_proj.k_scale", 0.75);
        let error = folder.error();
        assert!(error.contains("another scale of the same keys or values is"), "{error}");
    }
}

/// Configurations with every key that the writers of each format put there and that changes
/// nothing; the names are those of `quant::gptq::WRITTEN` and its sources.
#[test]
fn keys_that_quantisation_tools_write_and_that_change_nothing_are_read() {
    // GPTQModel 6: `method` besides `quant_method`, and its settings, at the top or in `meta`.
    let meta = json!({"quantizer": ["gptqmodel:6.0.3"], "uri": "https://github.com/modelcloud/gptqmodel", "mse": 0.0,
        "damp_percent": 0.05, "failsafe": {"strategy": "rtn"}, "pack_impl": "cpu", "vram_strategy": "exclusive"});
    let gptqmodel = json!({"method": "GPTQ", "checkpoint_format": "gptq", "format": "gptq", "pack_dtype": "int32",
        "act_group_aware": true, "true_sequential": true, "damp_percent": 0.05, "damp_auto_increment": 0.01,
        "static_groups": false, "mse": 0.0, "gptaq": null, "hessian": {"chunk_size": null}, "mock_quantization": false,
        "offload_to_disk": true, "offload_to_disk_path": "/tmp/x", "gc_mode": "interval", "failsafe": null,
        "wait_for_submodule_finalizers": false, "auto_forward_data_parallel": true, "rotation": null, "adapter": null,
        "lm_head": false, "dynamic": null, "meta": meta});
    // Optimum and transformers: GPTQConfig.
    let optimum = json!({"backend": "auto", "batch_size": 1, "block_name_to_quantize": null, "cache_block_outputs": true,
        "checkpoint_format": "gptq", "dataset": ["a"], "max_input_length": null, "meta": {"quantizer": ["optimum:2.1.0"]},
        "model_seqlen": null, "module_name_preceding_first_block": null, "modules_in_block_to_quantize": null,
        "pad_token_id": null, "tokenizer": null, "true_sequential": true, "use_cuda_fp16": false, "use_exllama": true,
        "exllama_config": {"version": 1}, "act_group_aware": true, "format": "gptq"});
    // AutoAWQ and GPTQModel's AWQ.
    let awq = json!({"backend": "autoawq", "do_fuse": false, "exllama_config": null, "fuse_max_seq_len": null,
        "modules_to_fuse": null, "modules_to_not_convert": null, "version": "gemm"});
    let awq_gptqmodel = json!({"method": "awq", "format": "gemm", "checkpoint_format": "gemm", "desc_act": false,
        "dynamic": null, "lm_head": false, "pack_dtype": "int32", "sym": false, "meta": {"quantizer": ["gptqmodel:6.0.3"]}});
    // llm-compressor.
    let compressed = json!({"global_compression_ratio": null, "kv_cache_scheme": null, "quantization_status": "compressed",
        "sparsity_config": {}, "transform_config": {}, "version": "0.12.2"});
    // ModelOpt.
    let modelopt = json!({"producer": {"name": "modelopt", "version": "0.33.0"}, "kv_cache_scheme": null,
        "has_zero_point": false, "pre_quant_scale": false, "clamp_val": null, "use_meta_recipe": false,
        "smoothquant_val": 0.5, "calibration": "max"});
    let written = [
        ("gptq v1", &gptqmodel),
        ("gptq v1", &optimum),
        ("awq", &awq),
        ("awq", &awq_gptqmodel),
        ("pack-quantized", &compressed),
        ("mxfp8 of modelopt", &modelopt),
    ];
    for (name, keys) in written {
        let Some(row) = ROWS.iter().find(|row| row.name == name) else {
            panic!("no row {name}: {:?}", ROWS.iter().map(|row| row.name).collect::<Vec<_>>());
        };
        let (plain, modules) = folder(row, SMALL, 7);
        plain.edit("config.json", |config| {
            let object = config["quantization_config"].as_object_mut().expect("an object");
            object.extend(keys.as_object().expect("an object").clone());
        });
        let checkpoint = plain.open().unwrap_or_else(|error| panic!("{name}: {error}"));
        for (module, drawn) in &modules {
            assert!(weights(&checkpoint, module) == expected(row, drawn), "{name}: {module}");
        }
    }
    let refused = |name: &str, key: &str, value: Value| changed(name, |config| config[key] = value).error();
    assert!(refused("gptq v1", "method", json!("awq")).contains("they must agree"));
    assert!(refused("gptq v1", "adapter", json!({"name": "lora"})).contains("low-rank adapter"));
    assert!(refused("gptq v1", "rotation", json!("hadamard")).contains("rotates activations"));
    assert!(refused("awq", "sym", json!(true)).contains("they must agree"));
    assert!(refused("gptq v1", "unheard_of", json!(1)).contains("unheard_of"));
}

/// 65 for 64 and 129 for 128 give scales of the same shape; only sizes that divide the extent or
/// are powers of two are read.
#[test]
fn sizes_of_groups_and_blocks_that_tools_do_not_write_are_refused() {
    struct Case {
        scheme: &'static str,
        /// The size that tools write, the size that is used for it, and the columns of both.
        sizes: [usize; 3],
        change: fn(&mut Value),
    }
    let of_groups = |config: &mut Value| group(config)["weights"]["group_size"] = json!(65);
    let cases = [
        Case { scheme: "pack-quantized", sizes: [64, 65, 128], change: of_groups },
        Case { scheme: "gptq v1", sizes: [64, 65, 128], change: |config| config["group_size"] = json!(65) },
        // Blocks of these files have twice as many columns as rows.
        Case {
            scheme: "fp8, blocks",
            sizes: [128, 129, 256],
            change: |config| config["weight_block_size"] = json!([64, 129]),
        },
    ];
    for Case { scheme, sizes: [written, other, columns], change } in cases {
        let row = ROWS.iter().find(|row| row.name == scheme).expect("a row");
        let group = if scheme == "fp8, blocks" { written / 2 } else { written };
        let sizes = Sizes { hidden: columns, head_dim: columns / 4, heads: 4, intermediate: columns, group };
        let (folder, _) = folder(row, sizes, 3);
        folder.open().unwrap_or_else(|error| panic!("{scheme}: {error}"));
        folder.edit("config.json", |config| change(&mut config["quantization_config"]));
        let error = folder.error();
        let expected = format!("groups or blocks of {other} over {columns}; a size that does not divide the extent");
        assert!(error.contains(&expected), "{scheme}: {error}");
        assert_eq!(columns.div_ceil(other), columns / written, "{scheme}: the scales fit both");
    }
    // Powers of two that do not divide the extent are sizes that tools write.
    for scheme in ["pack-quantized", "fp8, blocks"] {
        let row = ROWS.iter().find(|row| row.name == scheme).expect("a row");
        check(row, Sizes { hidden: 40, head_dim: 10, heads: 4, intermediate: 40, group: 16 }, 3);
    }
}
