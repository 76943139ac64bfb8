"""Options of `gecli compile` that change what gecli does."""

from __future__ import annotations

from functools import partial

from gecli.options.option import CACHE_COMMANDS, INT64_MAX, Option

ZERO_ONE = ("0", "1")
PRECISION_V1 = (
    "force_fp16", "force_fp32", "cube_fp16in_fp32out", "allow_mix_precision", "allow_fp32_to_fp16",
    "must_keep_origin_dtype", "allow_mix_precision_fp16", "allow_mix_precision_bf16", "allow_fp32_to_bf16",
)  # fmt: skip
PRECISION_V2 = ("fp16", "origin", "cube_fp16in_fp32out", "mixed_float16", "mixed_bfloat16")
GRAPH_KEY_PATTERN = r"[A-Za-z0-9_\-]{1,128}|[A-Za-z0-9_\-{}]*\{(?:stem|n)\}[A-Za-z0-9_\-{}]*|"
GRAPH_KEY_RULE = "use only letters, digits, '_' and '-', at most 128"
OUTPUT_TYPES = ("FP32", "FP16", "UINT8", "INT8", "HIF8", "HIF4", "FP8E5M2", "FP8E4M3FN")
EXTRA_OUTPUTS = ("json", "infershape-json", "original-om", "dot", "onnx", "ge-proto", "readable", "report", "varmap")
EXTERNAL_WEIGHT_WORDS = (("none", "0"), ("split", "1"), ("combined", "2"))
_INSIDE = "weights are always written into the OM; leave the option out"
_VIEW = "gecli inspect-om FILE shows the compiled model in this form"
_NO_DTYPE = "the simulator does not deliver this type; choose FP32, FP16, UINT8 or INT8"

_input = partial(Option, group="Input and shapes")
_output = partial(Option, group="Output")
_target = partial(Option, group="Target and precision")
_tune = partial(Option, group="Optimisation")
_variable = partial(Option, group="Variables and session")
_cache = partial(Option, group="Cache", fingerprint=False)
_look = partial(Option, group="Looking inside", fingerprint=False)
_rest = partial(Option, group="Other")

COMPILE_OPTIONS: tuple[Option, ...] = (
    _input("model", "--model", "path", None, "Model file; the same as a positional MODEL.", "FILE",
           multiple=True, aliases=("graph",), fingerprint=False),
    _input("from", "--from", "str", "auto", "Front end; auto looks at the content of the file.", "KIND",
           choices=("auto", "onnx", "tf", "air", "geproto", "json")),
    _input("ge.frameworkType", "--framework", "int", None, "Front end as atc numbers it.", "N",
           choices=("0", "1", "3", "5"), words=(("caffe", "0"), ("air", "1"), ("tf", "3"), ("onnx", "5")),
           code="E10007"),
    _input("input_shape", "--input-shape", "str", None,
           "Input shapes: NAME:1,3,224,224; -1 and 2~8 are dynamic; NAME: is a scalar.", "SHAPES",
           multiple=True, ge_aliases=("ge.inputShape",)),
    _input("dim", "--dim", "str", None, "Bind a symbolic dimension in every input.", "NAME=N", multiple=True,
           pattern=r".+=\d+", rule="NAME=N with a whole number"),
    _input("input_shape_range", "--input-shape-range", "str", None, "Old spelling of ranges in --input-shape.",
           "RANGES", hidden=True, ge_aliases=("ge.inputShapeRange",)),
    _input("input_format", "--input-format", "str", None, "Layout of the inputs.", "FORMAT",
           choices=("NCHW", "NHWC", "ND", "NCDHW", "NDHWC", "CHWN", "NC1HWC0", "NHWC1C0"),
           ge_aliases=("ge.inputFormat",)),
    _input("ge.INPUT_NODES_SET_FP16", "--input-fp16-nodes", "str", None, "Inputs to give as half: a;b.", "NAMES"),
    _input("base-dir", "--base-dir", "path", None, "Directory of external data of a model from stdin.", "DIR",
           fingerprint=False),
    _input("allow-external-outside", "--allow-external-outside", "bool", False,
           "Read data files outside the model's directory."),
    _input("rename-duplicates", "--rename-duplicates", "bool", False, "Give nodes of one name different ones."),

    _output("output", "-o, --output", "path", None, "Output or, for several models, directory; made if missing.",
            "PATH", fingerprint=False),
    _output("ge.outputNodeName", "--out-nodes", "str", None, "Outputs: node:0;node:1 or tensor names.", "NAMES",
            aliases=("outputs",)),
    _output("ge.outputDatatype", "--output-type", "str", None, "Type of the outputs, or node:0:FP16;...", "TYPE",
            pattern="|".join(OUTPUT_TYPES) + r"|[^;]+:\d+:(?:" + "|".join(OUTPUT_TYPES) + r")(?:;[^;]+)*;?|",
            rule="one of " + ", ".join(OUTPUT_TYPES) + ", or NODE:INDEX:TYPE;...",
            refused=tuple((name, _NO_DTYPE) for name in OUTPUT_TYPES[4:])),
    _output("ge.externalWeight", "--external-weight", "int", 0, "Where weights go: in the OM, a file each, or one.",
            "HOW", choices=("0", "1", "2"), words=EXTERNAL_WEIGHT_WORDS, code="E10006",
            refused=(("1", _INSIDE), ("2", _INSIDE))),
    _output("emit", "--emit", "str", None, "Extra outputs: json, readable, report, varmap.", "LIST",
            multiple=True, fingerprint=False,
            pattern="(?:" + "|".join(EXTRA_OUTPUTS) + ")(?:,(?:" + "|".join(EXTRA_OUTPUTS) + "))*",
            rule="a list of " + ", ".join(EXTRA_OUTPUTS),
            refused=(("infershape-json", "use --emit json --stop-after InferShapePass"),
                     ("original-om", "gecli writes compiled models only; use --emit json --stop-after parse"),
                     ("dot", _VIEW), ("onnx", _VIEW),
                     ("ge-proto", "gecli writes no GE text format; use --emit json"))),
    _output("depfile", "--depfile", "path", None, "Write a Make rule that names everything read.", "FILE",
            fingerprint=False),
    _output("if-changed", "--if-changed", "bool", False, "Do nothing when the output is up to date.",
            fingerprint=False),
    _output("print-hash", "--print-hash", "bool", False, "Print the sha256 of every output.", fingerprint=False),
    _output("keep-cmdline", "--keep-cmdline", "bool", False, "Store the command line as typed in the OM."),
    _output("strict-paths", "--strict-paths", "bool", False, "Refuse paths that atc refuses.", fingerprint=False),

    _target("ge.socVersion", "--soc-version", "str", "Ascend910B1", "Target chip.", "SOC", aliases=("target",)),
    _target("ge.exec.precision_mode_v2", "--precision-mode-v2", "str", None,
            "Precision; --precision also takes the older names.", "MODE",
            choices=PRECISION_V2, aliases=("precision",)),
    _target("ge.exec.precision_mode", "--precision-mode", "str", None, "Precision by its older names.", "MODE",
            choices=PRECISION_V1),
    _target("ge.exec.modify_mixlist", "--modify-mixlist", "path", None, "White, black and gray list (JSON).", "FILE"),
    _target("keep_dtype", "--keep-dtype", "path", None, "File of nodes that keep their type.", "FILE",
            ge_aliases=("ge.keepDtype",)),
    _target("format-policy", "--format-policy", "str", "device", "Use the device's storage formats or none.", "HOW",
            choices=("device", "origin")),
    _target("ge.enableSmallChannel", "--enable-small-channel", "str", "0", "C04 formats for few channels.", "0|1",
            choices=ZERO_ONE),

    _tune("ge.oo.level", "--oo-level", "str", "O3", "Optimisation level; O0 is the structural passes only.", "LEVEL",
          choices=("O0", "O1", "O3")),
    _tune("ge.oo.constantFolding", "--oo-constant-folding", "bool", True, "Fold constants."),
    _tune("ge.oo.deadCodeElimination", "--oo-dead-code-elimination", "bool", True, "Remove unused nodes."),
    _tune("ge.optimizationSwitch", "--optimization-switch", "str", None, "Switch passes: PASS:on;PASS:off.", "LIST",
          multiple=True, pattern=r"(?:[^:;]+:(?:on|off);?)*", rule="PASS:on or PASS:off, separated by ';'"),
    _tune("ge.fusionSwitchFile", "--fusion-switch-file", "path", None, "JSON file of pass switches.", "FILE"),
    _tune("ge.exec.disableReuseMemory", "--disable-reuse-memory", "int", 0, "Give every tensor its own memory.",
          "0|1", choices=ZERO_ONE, code="E10006"),
    _tune("verify-passes", "--verify-passes", "bool", False,
          "Evaluate the graph around every pass; name one that changes it."),
    _tune("allow-unsupported", "--allow-unsupported", "bool", False, "Load unknown operators, for --stop-after parse."),

    _variable("ge.graphRunMode", "--train", "bool", False, "Compile for training: constants are variables."),
    _variable("ge.exec.variable_acc", "--variable-acc/--no-variable-acc", "bool", True,
              "Let variables take the format their readers want.",
              note="Off whenever ge.AllowMultiGraphParallelCompile is 1."),
    _variable("ge.AllowMultiGraphParallelCompile", "--parallel-compile", "bool", False,
              "As GE with parallel compiles: variables keep their format."),
    _variable("ge.constLifecycle", "", "str", "graph", "Whether constants live as long as the graph or the session.",
              choices=("graph", "session"), note="With --train it is session when it is not given."),
    _variable("ge.exec.memoryOptimizationPolicy", "", "str", None, "Keep constants of a training graph in the model.",
              choices=("MemoryPriority",)),
    _variable("ge.evaluateGraphResourceMode", "", "int", 0, "Compute needs only: 1 lifts the limits of memory.",
              choices=ZERO_ONE),
    _variable("session", "--session", "str", "default", "Name of the session that all models share.", "NAME",
              fingerprint=False),
    _variable("no-session", "--no-session", "bool", False, "Give every model its own session.", fingerprint=False),
    _variable("session-in", "--session-in", "path", None, "Continue the session of an earlier command.", "FILE",
              fingerprint=False),
    _variable("session-out", "--session-out", "path", None, "Save the session for a later command.", "FILE",
              fingerprint=False),
    _variable("var-key-style", "--var-key-style", "str", "ge", "Form of variable keys in the saved session.",
              "ge|seed", choices=("ge", "seed"), fingerprint=False),
    _variable("no-rebuild", "--no-rebuild", "bool", False, "Fail when a later model makes an earlier one stale."),
    _variable("explain-variable", "--explain-variable", "str", None, "Say what became of a variable, and why.", "NAME",
              multiple=True, fingerprint=False),
    _variable("strict-variable-cast", "--strict-variable-cast", "bool", False,
              "Refuse to store a variable with less precision."),
    _variable("strict-var-init", "--strict-var-init", "bool", False,
              "A variable is initialised when a graph gives it a value, not when one uses it."),
    _variable("ge.variableMemoryMaxSize", "--var-mem-max-size", "size", None, "Limit of variable memory.", "SIZE"),
    _variable("ge.graphMemoryMaxSize", "", "size", None, "Limit of feature-map memory."),

    _cache("ge.graph_compiler_cache_dir", "--cache-dir", "path", None, "Keep compiled graphs in this directory.",
           "DIR", env="GECLI_CACHE_DIR", subcommands=("compile", *CACHE_COMMANDS)),
    _cache("ge.graph_key", "--graph-key", "str", None, "Name of the graph in the cache; derived if missing.", "KEY",
           pattern=GRAPH_KEY_PATTERN, rule=GRAPH_KEY_RULE),
    _cache("auto-graph-key", "--auto-graph-key/--no-auto-graph-key", "bool", True, "Derive a missing graph key."),
    _cache("cache-mode", "--cache-mode", "str", "rw", "How the cache is used.", "MODE",
           choices=("rw", "ro", "refresh", "off", "debug"), env="GECLI_CACHE_MODE", shorthands=(("no-cache", "off"),)),
    _cache("cache-create", "--cache-create", "bool", False, "Make the cache directory if it is missing."),
    _cache("cache-verify", "--cache-verify", "str", "fast", "How much of an entry is read before it is used.", "HOW",
           choices=("fast", "full")),
    _cache("lock-timeout", "--lock-timeout", "seconds", 60.0, "Wait so long for another compile; inf for ever.",
           "SEC", subcommands=("compile",)),
    _cache("require-cache", "--require-cache", "bool", False, "Exit 7 instead of compiling without the cache."),
    _cache("explain-cache", "--explain-cache", "bool", False, "Say why each entry did or did not match.",
           aliases=("cache-explain",)),

    _look("check", "--check", "bool", False, "Parse, check and infer shapes; write nothing."),
    _look("stop-after", "--stop-after", "str", None,
          "Stop after a stage; the graph goes to stdout, or beside -o.", "STAGE"),
    _look("print-pipeline", "--print-pipeline", "bool", False, "List stages and passes."),
    _look("print-schema", "--print-schema", "bool", False, "Print the JSON Schema of graph documents."),
    _look("dump-graph", "--dump-graph", "str", None, "Write the graph after each named stage.", "DIR[:STAGES]"),
    _look("ge.debugDir", "--debug-dir", "path", None, "Directory of --dump-graph when it names none.", "DIR",
          hidden=True),
    _look("report", "--report", "path", None, "Write the JSON report to a file.", "FILE"),
    _look("show-config", "--show-config", "bool", False, "Print every option's value and source."),
    _look("check_report", "--check-report", "path", None, "Report file of --check (atc mode 3).", "FILE",
          hidden=True),
    _look("ge.display_model_info", "--display-model-info", "int", 0, "Print model information when done.", "0|1",
          choices=ZERO_ONE, code="E10006", hidden=True),
    _look("log", "--log", "str", "null", "Message level as atc names it.", "LEVEL",
          choices=("debug", "info", "warning", "error", "null"), code="E10010", env="GECLI_LOG", hidden=True,
          ge_aliases=("log",)),

    _rest("mode", "--mode", "int", 0, "atc's mode: 0 compile, 1 OM to JSON, 3 check, 6 info.", "N",
          choices=("0", "1", "3", "5", "6", "7", "30"), fingerprint=False, hidden=True,
          refused=(("5", "gecli does not convert GE text dumps; gecli inspect-om FILE.om --json shows a model"),
                   ("7", "it writes the OM2 container; use --mode 0"),
                   ("30", "it writes models for nano chips; use --mode 0"))),
    _rest("om", "--om", "path", None, "Model of modes 1 and 6.", "FILE", fingerprint=False, hidden=True),
    _rest("json-file", "--json-file", "path", None, "JSON output of mode 1 (--json=FILE).", "FILE",
          fingerprint=False, hidden=True),
    _rest("ge-option", "--ge-option", "str", None, "Any GE option.", "KEY=VALUE", multiple=True, fingerprint=False,
          pattern=r"[^=]+=(?s:.*)", rule="KEY=VALUE"),
    _rest("raw-ge-options", "--raw-ge-options", "path", None,
          'JSON file of GE options: {"compile options": {"graph": {NAME: TEXT}}}.', "FILE",
          fingerprint=False),
    _rest("raw-ge-options-ignore-unsupported", "--raw-ge-options-ignore-unsupported", "bool", False,
          "Skip unknown keys of that file.", fingerprint=False, hidden=True),
    _rest("ignore-unsupported", "--ignore-unsupported", "bool", False, "Record what is not supported and go on."),
    _rest("werror", "--werror", "bool", False, "Treat warnings as errors."),
    _rest("keep-going", "--keep-going", "bool", False, "Go on with the next model after a failure.",
          fingerprint=False),
    _rest("jobs", "-j, --jobs", "int", 1, "Compile so many models at once, with --no-session.", "N", bounds=(1, 256),
          fingerprint=False),
    _rest("profile", "--profile", "str", None, "Use a profile of gecli.toml.", "NAME", fingerprint=False),
    _rest("threads", "--threads", "int", None, "Threads of a run; default: the cores, or what OPENBLAS_NUM_THREADS or "
          "OMP_NUM_THREADS allows. A compile uses one for its constants, so that they are the same everywhere.", "N",
          bounds=(0, INT64_MAX), env="GECLI_THREADS", fingerprint=False, subcommands=("compile", "run")),
)  # fmt: skip
