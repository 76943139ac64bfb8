"""Codes that GE defines (E and W); they keep GE's meaning, in our words."""

from __future__ import annotations

from gecli.error_catalog.entry import COMPILE, INPUT, INTERNAL_STATUS, OPTION, OUTPUT, RUN, Entry

_NO_AIPP = "gecli does not simulate AIPP, the image unit of the device. Preprocess the image inside the graph."
_NO_CAFFE = "gecli reads no Caffe models. Convert the model to ONNX."
_READ_AGAIN = (
    "The message names the place. Copy or compile the file again; `gecli inspect-om --salvage` shows what is left."
)

GE_CODES: dict[str, Entry] = {
    # Options
    "E10001": Entry(
        OPTION,
        "option value is not valid",
        "The value is outside the set or form that the option accepts.",
        "Give a value as the message shows it; `gecli COMMAND --help` lists what the option takes.",
    ),
    "E10002": Entry(
        OPTION,
        "--input-shape has a syntax error",
        "An item is not NAME:D1,D2,... or a dimension is not a whole number.",
        'Write --input-shape "NAME:1,3,224,224"; separate several inputs with ";".',
    ),
    "E10003": Entry(
        OPTION,
        "option value is malformed",
        "A number, gear list, format or output index does not have the required form.",
        "Correct the part that the message points at.",
    ),
    "E10004": Entry(
        OPTION,
        "option must not be empty",
        "The option, or one that another option depends on, was given without content.",
        "Give it a value or leave it out.",
    ),
    "E10005": Entry(
        OPTION, "option must be true or false", "The value is neither true nor false.", "Use true or false."
    ),
    "E10006": Entry(
        OPTION,
        "option must be a small number from a fixed set",
        "The value is outside the set; for most options it is 0 or 1, for --external-weight 0, 1 or 2.",
        "Use one of the numbers in the message.",
    ),
    "E10007": Entry(
        OPTION,
        "framework is not valid",
        "--framework accepts 1 (AIR), 3 (TensorFlow) and 5 (ONNX).",
        "Leave the option out: gecli finds the front end from the content of the file.",
    ),
    "E10008": Entry(OPTION, "Caffe models need --weight", "--framework 0 was given.", _NO_CAFFE),
    "E10009": Entry(
        OPTION,
        "gear options and shape ranges exclude each other",
        "More than one of the batch, image and dims gears was given, or gears together with a range.",
        "Keep one of the options that the message lists.",
    ),
    "E10010": Entry(
        OPTION,
        "--log level is not valid",
        "The level is not one of debug, info, warning, error, null.",
        "Use one of these levels, or -v.",
    ),
    "E10011": Entry(
        OPTION,
        "a static dimension must be positive",
        "--input-shape holds a dimension of 0 or less and no option makes it dynamic.",
        "Give the real size, use gears, or bind a symbol with --dim NAME=N.",
    ),
    "E10012": Entry(
        OPTION,
        "batch gears need inputs with a batch dimension",
        "An input is a scalar, so it has no dimension 0 to vary.",
        "Use --dynamic-dims, or compile with a fixed shape.",
    ),
    "E10013": Entry(
        OPTION,
        "number is out of range",
        "The number does not fit 64 bits or the limit of the option.",
        "Use a number within the limit shown.",
    ),
    "E10014": Entry(
        OPTION,
        "value cannot be read as the expected type",
        "A part of the value is not a number, or one input is given twice.",
        "Correct the part that the message points at.",
    ),
    "E10016": Entry(
        OPTION,
        "an option names a node that the model does not have",
        "The name is not among the nodes, inputs or variables of the model.",
        "Use one of the names in the message; names are case-sensitive.",
    ),
    "E10017": Entry(
        OPTION,
        "an option names a node that is not an input",
        "The node exists, but it is an inner node or a weight.",
        "Use the name of a graph input; the message lists them.",
    ),
    "E10018": Entry(
        OPTION,
        "batch gears: -1 outside dimension 0",
        "--dynamic-batch-size varies dimension 0 only, but another dimension is -1.",
        "Fix the other dimensions, or use --dynamic-dims.",
    ),
    "E10019": Entry(
        OPTION,
        "image gears: -1 is not exactly at height and width",
        "--dynamic-image-size varies height and width of 4-D inputs only.",
        "Put -1 at H and W of --input-format (NCHW: 2 and 3, NHWC: 1 and 2).",
    ),
    "E10020": Entry(
        OPTION,
        "image gear without two values",
        "Every image gear is HEIGHT,WIDTH.",
        'Write for example "224,224;448,448".',
    ),
    "E10021": Entry(
        OPTION, "output path is too long", "The path exceeds the limit of the file system.", "Use a shorter path."
    ),
    "E10022": Entry(
        OPTION,
        "output path has no file name",
        "The path ends in a slash and there is one model.",
        "Add a name: -o DIR/NAME.",
    ),
    "E10023": Entry(
        OPTION, "single-op file path is not valid", "--singleop does not name a file.", "Give the path of a JSON file."
    ),
    "E10024": Entry(
        INPUT,
        "single-op file cannot be opened",
        "The system refused to open the file.",
        "Check the path and its permissions.",
    ),
    "E10025": Entry(
        OPTION,
        "single-op file is not valid JSON",
        "The JSON text has an error at the place shown.",
        "Correct the text.",
    ),
    "E10026": Entry(
        OPTION, "single-op entry has no operator", 'The member "op" is missing or empty.', "Name the operator type."
    ),
    "E10027": Entry(
        OPTION,
        "single-op tensor description is not valid",
        "A tensor lacks its shape, data type or format, or one of them is unknown.",
        "Correct the member at the JSON pointer shown.",
    ),
    "E10028": Entry(
        OPTION,
        "single-op tensor attribute is not valid",
        "An optional member of a tensor (name, range, const value) does not fit the tensor.",
        "Correct the member at the JSON pointer shown.",
    ),
    "E10029": Entry(
        OPTION,
        "single-op attribute has no valid name",
        "The name is missing or the operator has no such attribute.",
        "Use a name that the message lists.",
    ),
    "E10030": Entry(
        OPTION,
        "single-op attribute value is not valid",
        "The value does not match the attribute's type.",
        "Correct the value at the JSON pointer shown.",
    ),
    "E10031": Entry(
        OPTION,
        "batch gears: no input has -1 at dimension 0",
        "--dynamic-batch-size has nothing to vary.",
        'Give --input-shape "NAME:-1,...".',
    ),
    "E10032": Entry(
        OPTION,
        "file of options cannot be used",
        "The file is not JSON (gecli.toml: TOML), or its members are not those that the option reads.",
        "Correct the file at the line or JSON pointer shown.",
    ),
    "E10034": Entry(
        OPTION, "AIPP excludes fp16 inputs", "An AIPP configuration and --input-fp16-nodes were given.", _NO_AIPP
    ),
    "E10035": Entry(
        OPTION,
        "fewer than two gears",
        "One gear is a static shape.",
        "Give at least two gears, or a static --input-shape.",
    ),
    "E10036": Entry(
        OPTION,
        "more than 100 gears",
        "Every gear is compiled; time and size grow with their number.",
        "Use fewer gears, or --ignore-unsupported.",
    ),
    "E10037": Entry(
        OPTION,
        "gears have different lengths",
        "Every gear must give the same number of values.",
        "Complete the gears shown.",
    ),
    "E10038": Entry(OPTION, "a gear value is below 1", "Sizes start at 1.", "Use positive values."),
    "E10039": Entry(OPTION, "a gear is given twice", "Two gears are equal.", "Remove one of them."),
    "E10040": Entry(
        OPTION,
        'a range ("~") cannot be used with gears',
        "Gears need -1 where they apply.",
        "Replace the range by -1, or drop the gear option.",
    ),
    "E10041": Entry(
        INPUT,
        "model cannot be loaded",
        "The file is not a model of the expected kind, or is damaged.",
        "The message says what the file really is. Leave --framework out to let gecli find the front end.",
    ),
    "E10045": Entry(
        OPTION,
        "gear values run out",
        "The inputs have more -1 dimensions than a gear has values.",
        "Give one value per -1, in input order.",
    ),
    "E10046": Entry(
        OPTION,
        "an input needs more values than a gear has",
        "A gear is shorter than the -1 dimensions of one input.",
        "Lengthen the gears.",
    ),
    "E10047": Entry(OPTION, "two options exclude each other", "Both options were given.", "Keep one of them."),
    "E10048": Entry(
        OPTION,
        "shape range has a syntax error",
        "A range is LOW~HIGH, -1, or a number; LOW must not exceed HIGH.",
        'Write for example --input-shape "NAME:1~8,3".',
    ),
    "E10049": Entry(
        OPTION,
        "rank differs from the model's",
        "The number of dimensions given is not the model's.",
        "Give as many dimensions as the model has.",
    ),
    "E10050": Entry(
        OPTION,
        "dimension is outside its range",
        "The model fixes the dimension to a value outside the range given.",
        "Include the model's value in the range.",
    ),
    "E10052": Entry(OPTION, "AIPP configuration is not valid", "--insert-op-conf was given.", _NO_AIPP),
    "E10054": Entry(
        OPTION,
        "required option is missing",
        "The command cannot work without it.",
        "Add the option that the message names.",
    ),
    "E10055": Entry(
        OPTION,
        "option or combination is not supported",
        "What was asked for does not exist, or has no meaning for an offline simulator.",
        "Use the alternative in the message, or --ignore-unsupported to record the option without effect.",
    ),
    "E10056": Entry(
        OPTION,
        "--precision-mode and --precision-mode-v2 exclude each other",
        "Both precision options were given.",
        "Keep one; --precision is the short name of --precision-mode-v2.",
    ),
    "E10057": Entry(
        OPTION,
        "options must be used together, or not together",
        "One of a pair is missing or one too many.",
        "Follow the pair in the message.",
    ),
    "E10058": Entry(OPTION, "parameter is not set or empty", "A needed part has no value.", "Give it a value."),
    "E10059": Entry(
        INPUT,
        "a conversion stage failed",
        "The stage named met something it cannot convert.",
        "The message shows the cause and the node.",
    ),
    "E10060": Entry(
        OPTION, "parameter is not valid", "A parameter has an unusable value.", "Use the expected value shown."
    ),
    "E10061": Entry(
        OPTION,
        "parameter differs from the expected value",
        "The front end accepts other values.",
        "Use the expected value shown.",
    ),
    "E10062": Entry(OPTION, "calls are out of order", "A step needs another one first.", "Do the named step first."),
    "E10410": Entry(
        INPUT,
        "file of an option is missing",
        "The file given to --keep-dtype or a compression option does not exist.",
        "Check the path.",
    ),
    "E10501": Entry(
        INPUT,
        "operator type has no definition",
        "No operator of this type is known.",
        "Check the spelling against the nearest type shown; --allow-unsupported keeps the node as it is.",
    ),
    # Front ends
    "E11xxx": Entry(INPUT, "Caffe model", "The code belongs to GE's Caffe front end.", _NO_CAFFE),
    "E12004": Entry(
        INPUT,
        "TensorFlow: constant input index out of range",
        "A node takes as attribute an input it does not have.",
        "Export the graph again.",
    ),
    "E12009": Entry(
        INPUT,
        "TensorFlow: input does not exist",
        "A node reads a node that the graph does not hold.",
        "Freeze the graph again.",
    ),
    "E12013": Entry(
        INPUT,
        "TensorFlow: function does not exist",
        "A node calls a function missing from the library.",
        "Export with the function library.",
    ),
    "E12029": Entry(
        INPUT,
        "TensorFlow: library file is missing",
        "graph_def_library.pbtxt was not found.",
        "Put the file beside the model.",
    ),
    # Files
    "E13000": Entry(INPUT, "path is empty", "A path option or a path inside a file is empty.", "Give a path."),
    "E13001": Entry(
        INPUT, "file cannot be opened", "The system's reason is in the message.", "Check the path and its permissions."
    ),
    "E13002": Entry(
        OPTION, "directory name is too long", "The path exceeds the limit of the file system.", "Use a shorter path."
    ),
    "E13003": Entry(
        INPUT, "file cannot be read", "The system's reason is in the message.", "Check the disk and the permissions."
    ),
    "E13004": Entry(
        OUTPUT,
        "file cannot be written",
        "The system's reason is in the message.",
        "Check the directory, its permissions and the free space.",
    ),
    "E13005": Entry(
        INPUT, "file cannot be parsed", "The content breaks off or does not have the expected form.", _READ_AGAIN
    ),
    "E13006": Entry(
        INPUT,
        "file has the wrong type",
        "The file holds another kind of content.",
        "Give the file that the message asks for.",
    ),
    "E13009": Entry(
        INPUT, "operator name is used twice", "Names identify nodes, so they must differ.", "Rename one of the nodes."
    ),
    "E13010": Entry(
        INPUT,
        "operator type is not supported",
        "The front end has no translation for this type; in `gecli run`, the simulator has no kernel for it, or its "
        "attributes are not those of the type, as in OM files of atc, whose nodes have device types.",
        "Replace the node, or use --allow-unsupported to keep it; such a model cannot be run. For an OM of atc, "
        "`gecli compile` its source model and run that; `gecli inspect-om` shows the OM.",
    ),
    "E13014": Entry(
        INPUT,
        "operator attribute is not valid",
        "The value is outside what the operator accepts.",
        "Correct the attribute in the model.",
    ),
    "E13015": Entry(
        INPUT,
        "file size is out of range",
        "The file is empty or larger than the reader's limit.",
        "Check that the file is complete.",
    ),
    "E13018": Entry(
        INPUT, "text format cannot be parsed", "The protobuf text has an error at the place shown.", "Correct the text."
    ),
    "E13023": Entry(
        OUTPUT,
        "model file would be too large",
        "Fields of the OM header hold 32-bit or 64-bit sizes.",
        "Use --external-weight combined.",
    ),
    "E13024": Entry(
        OPTION,
        "environment variable is not valid",
        "The variable's value cannot be used.",
        "Correct or unset the variable.",
    ),
    "E13025": Entry(
        RUN,
        "input of the run is not valid",
        "Number, size or type of the inputs differ from the model's.",
        "Give data as `gecli inspect-om FILE --io` lists.",
    ),
    "E13026": Entry(
        OPTION,
        "path is not valid",
        "The path does not exist, is of another kind, or holds characters that --strict-paths refuses.",
        "Check the path.",
    ),
    "E13028": Entry(COMPILE, "custom pass failed", "A user pass reported an error.", "Correct the pass."),
    "E13029": Entry(
        COMPILE, "custom pass cannot be loaded", "The pass library could not be read.", "Correct the library."
    ),
    "E13030": Entry(
        COMPILE, "custom pass cannot be registered", "The name is taken or not valid.", "Use another name."
    ),
    "E13031": Entry(
        RUN,
        "output buffer of the run is not valid",
        "Number or size of the outputs differ from the model's.",
        "Give buffers as `gecli inspect-om FILE --io` lists.",
    ),
    # Operators and ONNX
    "E14001": Entry(
        COMPILE,
        "operator argument is not valid",
        "An input or attribute cannot be compiled.",
        "Correct the node in the model.",
    ),
    "E14002": Entry(
        COMPILE, "operator attribute is missing", "The operator needs the attribute.", "Add it in the model."
    ),
    "E16001": Entry(
        INPUT,
        "ONNX graph has no input or output",
        "A graph without outputs computes nothing.",
        "Export the model with its outputs.",
    ),
    "E16002": Entry(
        INPUT,
        "ONNX operator is not supported",
        "There is no translation for the operator in this opset.",
        "Replace the operator, or use --allow-unsupported to keep it; such a model cannot be run.",
    ),
    "E16004": Entry(
        INPUT, "ONNX model has no graph", "The file parses as ONNX but the graph is missing.", "Export the model again."
    ),
    "E16005": Entry(
        0, "more than one opset domain", "Older tools refuse this; gecli accepts it.", "Nothing needs to be done."
    ),
    "E19999": Entry(
        INTERNAL_STATUS,
        "unknown inner error",
        "GE reports every unforeseen fault so.",
        "gecli reports the real cause with a G code.",
    ),
    "W11001": Entry(0, "slow operator implementation", "GE would choose a slower kernel.", "Nothing needs to be done."),
    "W11002": Entry(
        0,
        "compression names an unknown node",
        "The compression file names a node that the model lacks.",
        "Correct the file.",
    ),
    "W11003": Entry(
        0,
        "operator implementation is missing",
        "GE would have no kernel for the operator.",
        "Nothing needs to be done for a simulation.",
    ),
}
