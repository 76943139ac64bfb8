"""Codes that only gecli has (G): causes for which GE reports an unknown inner error."""

from __future__ import annotations

from gecli.error_catalog.entry import CACHE, COMPILE, INPUT, INTERNAL_STATUS, OUTPUT, RUN, Entry

_READ_AGAIN = (
    "The message names the place. Copy or compile the file again; `gecli inspect-om --salvage` shows what is left."
)

GECLI_CODES: dict[str, Entry] = {
    # gecli: input
    "G1001": Entry(
        INPUT,
        "file is of a foreign kind",
        "The content belongs to another tool.",
        "The message says what the file is and what reads it.",
    ),
    "G1002": Entry(
        INPUT, "model file is truncated", "The file ends before its content does.", "Copy or download the file again."
    ),
    "G1003": Entry(
        INPUT,
        "external data is missing",
        "A weight lives in a file that is not there or too short.",
        "Put the data file beside the model.",
    ),
    "G1004": Entry(
        INPUT,
        "shape and data count differ",
        "A constant holds more or fewer values than its shape says.",
        "Export the model again.",
    ),
    "G1005": Entry(
        INPUT,
        "model uses unsupported operators",
        "Every type is reported with its nodes.",
        "Replace them, or use --allow-unsupported to look at the graph.",
    ),
    # gecli: compile
    "G2001": Entry(
        COMPILE,
        "shape inference failed",
        "The inputs of a node do not fit its operator.",
        "Check --input-shape and the node shown.",
    ),
    "G2002": Entry(
        COMPILE,
        "data cannot be converted",
        "There is no road between the two formats or types.",
        "Use --format-policy origin, or change the precision option.",
    ),
    "G2003": Entry(
        COMPILE,
        "a pass changed the results",
        "--verify-passes found different numbers.",
        "Please report this. --optimization-switch PASS:off avoids a pass that correct results do not need.",
    ),
    "G2004": Entry(
        COMPILE,
        "variable may not change its format again",
        "A variable changes at most once in a session.",
        "Compile all models of the session in one command, or use --no-variable-acc.",
    ),
    "G2005": Entry(
        COMPILE,
        "an earlier model is stale",
        "A later model changed a variable that the earlier one reads, and --no-rebuild was given.",
        "Drop --no-rebuild.",
    ),
    "G2010": Entry(
        COMPILE,
        "variable key conflict",
        "Two variables of one name differ in type or format.",
        "Rename one, or give both the same description.",
    ),
    "G2011": Entry(
        COMPILE,
        "variable would grow",
        "A model of the session needs a larger variable than was assigned.",
        "Compile the model with the largest shape first.",
    ),
    "G2012": Entry(
        COMPILE,
        "variables overlap",
        "Two variables would share addresses.",
        "Remove the placement, or start a new session.",
    ),
    "G2013": Entry(
        COMPILE,
        "variable memory is exhausted",
        "The variables exceed the variable memory.",
        "Raise --var-mem-max-size.",
    ),
    "G2014": Entry(
        COMPILE, "variable size is unknown", "A variable must have a static shape.", "Give the variable a static shape."
    ),
    "G2015": Entry(
        COMPILE, "variable does not exist", "A node refers to a variable that the session lacks.", "Check the name."
    ),
    "G2016": Entry(
        COMPILE,
        "transform roads conflict",
        "Two models want different storage for one variable.",
        "Declare the variable alike in all models, or rename one. Where only the stored forms differ, compile the "
        "models in one command.",
    ),
    "G2017": Entry(
        COMPILE, "variable pool is missing", "The session has no pool for this memory type.", "Check the session file."
    ),
    "G2018": Entry(
        COMPILE,
        "a pass failed",
        "The pass left the graph unchanged and reported why.",
        "The message names pass and node.",
    ),
    "G2019": Entry(
        COMPILE,
        "a variable is stored with less precision",
        "Every reader converts the variable to a narrower type, so the narrower value is what is stored.",
        "Keep it as it is, or compile with --strict-variable-cast to store the full value.",
    ),
    "G2020": Entry(
        COMPILE,
        "constants do not fit half",
        "The precision mode turns constants into half that are beyond its range: they become infinite or zero.",
        "Use --precision mixed_float16 or cube_fp16in_fp32out, or keep the nodes with --keep-dtype.",
    ),
    # gecli: reading artifacts
    "G3001": Entry(
        INPUT,
        "not an OM file",
        "The file does not begin like an OM.",
        "Give an .om file; the message says what the file is.",
    ),
    "G3002": Entry(
        INPUT, "OM length does not match", "The file is shorter or longer than its header says.", _READ_AGAIN
    ),
    "G3003": Entry(
        INPUT, "OM partition table is damaged", "A partition lies outside the file or over another one.", _READ_AGAIN
    ),
    "G3004": Entry(INPUT, "OM model definition cannot be parsed", "The protobuf content is damaged.", _READ_AGAIN),
    "G3005": Entry(
        INPUT,
        "file is of a newer version",
        "Parts unknown to this version are skipped.",
        "Use a newer gecli to see all of it.",
    ),
    "G3006": Entry(INPUT, "checksum does not match", "The content changed after it was written.", _READ_AGAIN),
    "G3007": Entry(
        INPUT,
        "variable packet or session file is damaged",
        "The content cannot be parsed or contradicts itself.",
        "Compile again to write a new one.",
    ),
    "G3008": Entry(
        INPUT,
        "kind of model file is not supported",
        "The container is recognised but cannot be used here.",
        "The message names the kind.",
    ),
    "G3009": Entry(INPUT, "OM header is damaged", "A field of the header has an impossible value.", _READ_AGAIN),
    "G3010": Entry(INPUT, "OM has no model definition", "The partition MODEL_DEF is missing.", _READ_AGAIN),
    "G3011": Entry(INPUT, "graph of the OM is inconsistent", "Edges or names do not fit together.", _READ_AGAIN),
    "G3012": Entry(
        INPUT, "weights of the OM are inconsistent", "A weight lies outside the weight partition.", _READ_AGAIN
    ),
    "G3013": Entry(INPUT, "kernel store of the OM is damaged", "An entry lies outside the store.", _READ_AGAIN),
    "G3014": Entry(INPUT, "attribute name table is damaged", "A compressed name has no entry.", _READ_AGAIN),
    "G3015": Entry(INPUT, "input and output table is damaged", "The table does not fit the graph.", _READ_AGAIN),
    # gecli: run
    "G4001": Entry(
        RUN,
        "input shape cannot be used",
        "The shape is outside what the model was compiled for.",
        "Give a shape within the range shown.",
    ),
    "G4002": Entry(RUN, "no gear covers the input shape", "A gear must match exactly.", "Use one of the gears listed."),
    "G4003": Entry(
        RUN,
        "external weight is missing",
        "A weight file was found in none of the directories.",
        "Name its directory with --weight-dir.",
    ),
    "G4004": Entry(
        RUN,
        "external weight changed since the compile",
        "The file is short or its digest differs.",
        "Compile again, or restore the file.",
    ),
    "G4005": Entry(
        RUN,
        "simulated device memory is exhausted",
        "The model needs more memory than the device has.",
        "Raise --mem-limit; the table shows the largest users.",
    ),
    "G4006": Entry(
        RUN,
        "variable is read before it is initialised",
        "It has no initial value and nothing wrote it.",
        "Use --load-vars, --set-var, --init zero, or run the init model first.",
    ),
    "G4007": Entry(
        RUN,
        "not a number or infinity",
        "An output holds values that are not finite, or --check-numerics stopped at a node that made one.",
        "`gecli run --check-numerics` names the first node that makes one; look at its inputs.",
    ),
    "G4008": Entry(
        RUN,
        "checkpoint and session have other variables",
        "The file of --load-vars holds variables that no model of the session has; they are left out.",
        "`gecli inspect-om OM --vars` shows the variables of a model, numpy.load(FILE).files those of a checkpoint.",
    ),
    "G4009": Entry(
        RUN,
        "operator cannot compute with its inputs",
        "The shapes or values that reached the node do not fit its operator.",
        "Check the shapes and values of the model's inputs; the message shows those of the node.",
    ),
    "G4010": Entry(
        INPUT,
        "variable or its address cannot be found",
        "No variable of the session has the name, or the address is unassigned, out of range, taken or not ready.",
        "Check the name; for an address, run the OM with the packet of the same compile.",
    ),
    "G4011": Entry(
        INPUT,
        "variable description does not match",
        "OM, packet and session describe the variable differently, two models declare it or its initial value "
        "differently, or a value does not have its shape and type.",
        "Declare it alike in all models and use files of one compile; values need the variable's shape and type.",
    ),
    "G4012": Entry(
        INPUT,
        "reference, buffer use or order is inconsistent",
        "An output refers to memory that it may not share, or nothing orders two nodes that use what one writes.",
        "For an order, add a control edge between the nodes that the message names; else compile the model again.",
    ),
    "G4013": Entry(
        RUN,
        "user-supplied memory cannot be used",
        "The area is too small, used twice or not bound.",
        "Give an area of the size shown.",
    ),
    "G4014": Entry(
        RUN,
        "loop limit reached",
        "A loop did not end within --max-loop iterations.",
        "Raise --max-loop, or check the condition.",
    ),
    "G4015": Entry(
        RUN,
        "collective operators do not match",
        "The devices disagree on a collective, wait for each other, or are another number than the model is made for.",
        "Let every device of --device run the same collectives in the same order.",
    ),
    "G4016": Entry(
        RUN,
        "guard bytes were overwritten",
        "An operator wrote outside its buffer.",
        "Please report this with the model.",
    ),
    # gecli: cache, outputs, bugs
    "G5001": Entry(
        CACHE,
        "cache lock was not obtained",
        "Another process holds the lock of the key.",
        "Wait, or raise --lock-timeout (--wait of the cache commands).",
    ),
    "G5002": Entry(
        CACHE,
        "cache cannot be used",
        "The directory or its index is damaged or not accessible.",
        "`gecli cache verify` says what is wrong and with --repair mends it; check the permissions of the directory.",
    ),
    "G5003": Entry(
        CACHE,
        "cache entry was not stored",
        "The outputs are complete; only the cache entry is missing.",
        "Check the free space and the permissions.",
    ),
    "G5004": Entry(
        INPUT,
        "cache archive is damaged",
        "A member is missing, changed, or has an unsafe name.",
        "Export the entry again.",
    ),
    "G6001": Entry(
        OUTPUT,
        "output cannot be written",
        "The system's reason is in the message.",
        "Check the directory and its permissions.",
    ),
    "G6002": Entry(OUTPUT, "no space left for the output", "The file system is full.", "Free some space."),
    "G9001": Entry(
        INTERNAL_STATUS,
        "installation of gecli is incomplete",
        "A Python package that gecli needs is missing or cannot be loaded.",
        "Install gecli again, with 'pip install --force-reinstall gecli'.",
    ),
    "G9999": Entry(
        INTERNAL_STATUS,
        "bug in gecli",
        "gecli met a case that it does not handle.",
        "Please report it with the crash report that the message names.",
    ),
}
