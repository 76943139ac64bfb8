"""The static memory policy (GE: STATIC_MEMORY_POLICY) out of an option and an environment variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gecli.options.values import Options

OPTION = "ge.exec.staticMemoryPolicy"
ENVIRONMENT = "GE_USE_STATIC_MEMORY"
POLICIES = ("0", "1", "2", "3", "4")
_STATIC = frozenset((1, 2, 4))  # static graphs of a session share one growing block
_DYNAMIC = frozenset((3, 4))  # graphs of dynamic shape use expandable memory


def effective_policy(*asked: int | None) -> int:
    """0 exact allocation, 2 static, 3 dynamic, 4 both; what option and environment ask for adds up."""
    static, dynamic = (any(each in policies for each in asked) for policies in (_STATIC, _DYNAMIC))
    return {(True, True): 4, (True, False): 2, (False, True): 3, (False, False): 0}[static, dynamic]


def policy_of(text: str | None) -> int | None:
    """The policy that a text names; None for no text, 0 for any other one, as in GE."""
    return None if text is None else int(text) if text in POLICIES else 0


def take_environment(options: Options, text: str) -> None:
    """Record the policy that option and environment variable give together; warn where GE only has a rule for users."""
    from gecli.errors import Diagnostic

    policy, typed = policy_of(text), options.integer(OPTION)

    def warn(code: str, message: str, why: str, do: str) -> None:
        options.warnings.append(
            Diagnostic(code, message, why=why, do=do, option=ENVIRONMENT, actual=text, severity="warning")
        )

    if text not in POLICIES:
        why = f"expected one of {', '.join(POLICIES)}; it counts as 0"
        warn("E13024", f'value "{text}" for {ENVIRONMENT} is invalid', why, f"unset {ENVIRONMENT}")
    effective = effective_policy(typed, policy)
    if typed is not None and typed != policy:
        why = f"the option is {typed}, the variable {policy}; together they are policy {effective}"
        warn("E10001", f"{OPTION} and {ENVIRONMENT} are both set and differ", why, "set one of them")
    options.set(options.option(OPTION), effective, options.origin(OPTION) if typed is not None else "environment")
