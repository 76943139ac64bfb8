"""Options of `gecli run`."""

from __future__ import annotations

from functools import partial

from gecli.options.option import INT64_MAX, Option

_RUN = ("run",)
_input = partial(Option, subcommands=_RUN, group="Inputs")
_exec = partial(Option, subcommands=_RUN, group="Execution")
_variable = partial(Option, subcommands=_RUN, group="Variables and weights")
_memory = partial(Option, subcommands=_RUN, group="Simulated memory")
_output = partial(Option, subcommands=_RUN, group="Outputs")
_compare = partial(Option, subcommands=_RUN, group="Comparison")
_time = partial(Option, subcommands=_RUN, group="Timing and dumps")
_refused = partial(Option, subcommands=_RUN, option_class="X", group="Refused", hidden=True)
_GEARS = "models have no gears; --shape gives the size of a dynamic input"
_MEMORY = "the simulator has one kind of memory; --mem-limit sets its size"

RUN_OPTIONS: tuple[Option, ...] = (
    _input("model", "--model", "path", None, "OM file; the same as a positional OM.", "FILE", multiple=True,
           hidden=True),
    _input("input", "-i, --input", "str", None, "x.npy, name=x.npy, name=3, name=2x2xf32=1,2,3,4, all.npz, dir/ or -; "
           "MODEL:name= for one of several models.",
           "SPEC", multiple=True, aliases=("inputs",)),
    _input("fill", "--fill", "str", "random", "Inputs not given: random, zeros, ones, iota or const:V.", "HOW",
           pattern=r"random|zeros|ones|iota|const:.+", rule="random, zeros, ones, iota or const:V",
           aliases=("pure-data-type",)),
    _input("seed", "--seed", "int", 1, "Seed of random inputs.", "N", bounds=(0, INT64_MAX)),
    _input("val-range", "--val-range", "str", None, "Range of random values: LO,HI or NAME:[LO,HI].", "RANGE",
           multiple=True),
    _input("shape", "--shape", "str", None, "Shapes of dynamic inputs: NAME:1,3,32,32;...", "SHAPE", multiple=True,
           aliases=("dym-shape", "dymShape")),
    _input("cast", "--cast", "bool", False, "Convert .npy inputs of another type."),
    _input("transpose", "--transpose", "str", None, "Transpose an input: NAME:0,3,1,2.", "SPEC", multiple=True),
    _input("save-inputs", "--save-inputs", "path", None, "Save the inputs that were used.", "FILE.npz"),

    _exec("loop", "--loop", "int", 1, "Measured runs. They and warm-ups begin with the same variables.", "N",
          bounds=(1, INT64_MAX), aliases=("iterations", "repeat")),
    _exec("warmup", "--warmup", "int", None, "Runs before measuring (0 for one run, else 3).", "N",
          bounds=(0, INT64_MAX), aliases=("warmup-count", "warm-up")),
    _exec("duration", "--duration", "seconds", None, "Measure at least so long.", "SEC"),
    _exec("order", "--order", "str", None, 'Schedule: "A.om;B.om;A.om"; each turn takes all batches, '
          "the last turn of a model gives its outputs.",
          "LIST"),
    _exec("device", "--device", "str", "0", "Simulated devices from 0 to 7, each with its own variables: 0,1.", "LIST",
          pattern=r"[0-7](?:,[0-7])*", rule="numbers from 0 to 7 separated by ','"),
    _exec("collective-timeout", "--collective-timeout", "seconds", 30.0,
          "Longest wait for other devices at a collective.", "SEC", bounds=(0.001, float("inf"))),
    _exec("no-session", "--no-session", "bool", False, "Give every OM its own session."),
    _exec("check-numerics", "--check-numerics", "bool", False, "Stop at the first infinity or NaN.",
          aliases=("status-check",)),
    _exec("max-loop", "--max-loop", "int", 10_000_000, "Limit of iterations of a loop in the graph.", "N",
          bounds=(1, INT64_MAX)),
    _exec("isolate-io", "--isolate-io", "bool", False, "Copy all inputs and outputs.", option_class="R", hidden=True,
          note="they always are"),
    _variable("eager-vars", "--eager-vars", "bool", False, "Give variables memory at load.", option_class="R",
              hidden=True, note="those that a model uses have it from its load on"),
    _exec("deterministic", "--deterministic", "str", None, "Ask for the same bits in every run.", "HOW",
          option_class="R", hidden=True, note="kernels of the simulator always give them"),
    _exec("debug", "--debug", "bool", False, "Accepted from other tools.", option_class="R", hidden=True),
    _exec("output-size", "--output-size", "str", None, "Accepted from other tools.", "LIST", option_class="R",
          hidden=True, aliases=("outputSize",)),

    _variable("set-var", "--set-var", "str", None, "Set a variable before the first run.", "NAME=FILE.npy",
              multiple=True, pattern=r"[^=]+=.+", rule="NAME=FILE.npy"),
    _variable("get-var", "--get-var", "str", None, "Show or save a variable after the last run.",
              "NAME[=FILE.npy]", multiple=True),
    _variable("load-vars", "--load-vars", "path", None, "Load variables before the first run.", "FILE.npz",
              aliases=("vars-in",)),
    _variable("save-vars", "--save-vars", "path", None, "Save variables after the last run.", "FILE.npz",
              aliases=("vars-out",)),
    _variable("var-names", "--var-names", "str", None, "Load and save only these variables.", "GLOB[,GLOB]"),
    _variable("vars-strict", "--vars-strict", "bool", False,
              "Refuse a --load-vars file with variables that no model has."),
    _variable("raw-format", "--raw-format", "bool", False, "Save variables as stored."),
    _variable("vars", "--vars", "path", None, "Variable packet; default: beside the OM.", "FILE.rdcpkt",
              aliases=("vars-desc",)),
    _variable("session-in", "--session-in", "path", None,
              "Continue a session: what its variables are, not what they hold (--load-vars).", "FILE"),
    _variable("session-out", "--session-out", "path", None,
              "Save the session: what its variables are, not what they hold (--save-vars).", "FILE"),
    _variable("init", "--init", "str", "error", "Variables without a value: zero, random or error.", "HOW",
              choices=("zero", "random", "error")),
    _variable("strict-order", "--strict-order", "bool", False,
              "Refuse OMs that read and write a variable in no order."),
    _variable("strict-variable-addresses", "--strict-variable-addresses", "bool", False,
              "Refuse OMs of one session that use one address for two variables, or two addresses for one."),
    _variable("external-var", "--external-var", "size", None,
              "Keep the variables in one area of this size, as a caller who brings the memory.", "BYTES"),
    _variable("placeholder", "--placeholder", "str", None, "Value of a ConstPlaceHolder.", "NAME=FILE.npy",
              multiple=True, pattern=r"[^=]+=.+", rule="NAME=FILE.npy"),
    _variable("weights", "--weights", "str", "mmap", "How weights are held.", "HOW",
              choices=("mmap", "copy", "lazy"), refused=(("lazy", "mmap reads a weight when it is first used"),)),
    _variable("weight-dir", "--weight-dir", "path", None, "Directory of external weights, looked into first.", "DIR",
              multiple=True),
    _variable("no-verify-weights", "--no-verify-weights", "bool", False,
              "Use external weights without comparing their digests."),
    _variable("value-bins", "--value-bins", "str", None, "External weights by id, as ge.exec.value_bins has them.",
              "JSON"),

    _memory("mem-limit", "--mem-limit", "size", None, "Memory of the simulated device.", "SIZE"),
    _memory("ge.variableUse1gHugePage", "--huge-page", "int", 0,
            "Pages of 1 GiB for variables: 1 only these, 2 as long as there are any.", "N", choices=("0", "1", "2")),
    _memory("mem-fill", "--mem-fill", "str", "zero", "Content of fresh memory.", "HOW", choices=("zero", "poison")),
    _memory("print-memory-map", "--print-memory-map", "bool", False, "Print the memory map after loading."),
    _memory("plan", "--plan", "bool", False, "Show the memory needed; run nothing."),

    _output("output", "-o, --output", "path", None, "Directory, X.npz, or - for an npz on stdout.", "PATH",
            aliases=("output-dir", "output-dirname", "outputs")),
    _output("output-format", "--output-format", "str", "npy", "Format of the files.", "FORMAT",
            choices=("npy", "bin", "txt", "npz", "json"),
            words=(("NPY", "npy"), ("BIN", "bin"), ("TXT", "txt")), aliases=("out-format", "outfmt")),

    _compare("compare", "--compare", "path", None,
             "Compare with .npz, .npy or a directory, or with .om or .onnx as gecli itself computes them.", "GOLDEN"),
    _compare("rtol", "--rtol", "str", None, "Relative tolerance, or NAME:R; default 1e-3, half 1e-2, integers 0.", "R",
             multiple=True),
    _compare("atol", "--atol", "str", None, "Absolute tolerance, or NAME:A; default 1e-5, half 1e-3, integers 0.", "A",
             multiple=True),
    _compare("stat", "--stat", "str", "all", "Which error must pass.", "STAT",
             pattern=r"all|max|mean|median|quantile:(?:0?\.\d+|1|0)",
             rule="all, max, mean, median or quantile:Q"),
    _compare("nan-differs", "--nan-differs", "bool", False, "NaN does not equal NaN."),

    _time("profile", "--profile", "bool", False, "Time per operator.", aliases=("profiler",)),
    _time("profile-by", "--profile-by", "str", "type", "Group the profile.", "WHAT",
          choices=("type", "op", "stream")),
    _time("profile-out", "--profile-out", "path", None, "Write the profile (.json trace or .csv).", "FILE"),
    _time("export-times", "--export-times", "path", None, "Write every sample.", "FILE.json"),
    _time("dump", "--dump", "str", None, "Write intermediate tensors of these nodes.", "GLOB", multiple=True),
    _time("mark", "--mark", "str", None, "Write all intermediate tensors.", "all", choices=("all",)),
    _time("dump-dir", "--dump-dir", "path", None, "Directory of these tensors; default: dump/ in that of -o.", "DIR"),
    _time("dump-inputs", "--dump-inputs", "bool", False, "Write the nodes' inputs too."),

    _refused("dym-batch", "--dym-batch", "int", None, "Batch gear to use.", "N", aliases=("dymBatch", "batchsize"),
             bounds=(1, INT64_MAX), note=_GEARS),
    _refused("dym-hw", "--dym-hw", "str", None, "Image gear to use.", "H,W", aliases=("dymHW",),
             pattern=r"\d+,\d+", rule="two numbers separated by ','", note=_GEARS),
    _refused("dym-dims", "--dym-dims", "str", None, "Dims gear to use: data:1,600;im:1,600.", "DIMS",
             aliases=("dymDims", "dynamic-dims"), note=_GEARS),
    _refused("ge.exec.staticMemoryPolicy", "--static-memory-policy", "int", 0, "Memory policy.", "N",
             choices=("0", "1", "2", "3", "4"), note=_MEMORY),
    _refused("device-profile", "--device-profile", "path", None, "Description of a device.", "FILE", note=_MEMORY),
    _refused("huge-page-fallback", "--huge-page-fallback", "str", None, "Rounding of the fallback.", "HOW",
             note="what --huge-page 2 falls back to is rounded to 1 GiB, as on the device"),
    _refused("fast-math", "--fast-math", "bool", False, "Less exact kernels.",
             note="the simulator has one kernel for each operator"),
    _refused("winograd", "--winograd", "bool", False, "Convolutions by Winograd's method.",
             note="the simulator has one kernel for each operator"),
    _refused("guard-check", "--guard-check", "bool", False, "Check guard bytes around every buffer.",
             note="there are no guard bytes; --mem-fill poison shows a read of memory that nothing wrote"),
    _refused("shuffle-address", "--shuffle-address", "int", None, "Other device addresses in every run.", "SEED",
             bounds=(0, INT64_MAX), note="operands are bound by logical address; there are no device addresses"),
    _refused("legacy-names", "--legacy-names", "bool", False, "File names as other tools write them.",
             note="files are named after the outputs"),
)  # fmt: skip
