"""Mathematics in untrusted Markdown: found before Markdown can garble it, typeset only if every command is known.

A typesetter is an interpreter: ``\\href``, ``\\bbox``, ``\\class`` or ``\\require`` make links, load pictures or code.
So this is a list of what may pass, not of what may not; anything else is shown as source.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

_COMMANDS = frozenset(
    re.findall(
        r"\S+",
        """
        alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa varkappa lambda mu nu xi
        omicron pi varpi rho varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi
        Pi Sigma Upsilon Phi Psi Omega digamma aleph beth gimel hbar hslash ell wp Re Im imath jmath partial nabla
        infty emptyset varnothing forall exists nexists neg lnot top bot angle measuredangle triangle square
        blacksquare diamond star prime backprime sharp flat natural clubsuit diamondsuit heartsuit spadesuit
        complement mho eth frac dfrac tfrac cfrac binom dbinom tbinom sqrt sum prod coprod int iint iiint oint
        bigcup bigcap bigsqcup bigvee bigwedge bigoplus bigotimes bigodot biguplus lim limsup liminf sup inf max
        min arg argmax argmin det dim ker hom gcd deg exp ln log lg sin cos tan cot sec csc arcsin arccos arctan
        sinh cosh tanh coth Pr mod bmod pmod pod pm mp times div cdot ast star circ bullet cap cup uplus sqcap
        sqcup vee wedge lor land setminus smallsetminus wr oplus ominus otimes oslash odot dagger ddagger amalg
        bigcirc bigtriangleup bigtriangledown ltimes rtimes lt gt le leq ge geq ne neq equiv sim simeq approx
        approxeq cong propto ll gg lll ggg prec succ preceq succeq subset supset subseteq supseteq subsetneq
        supsetneq sqsubseteq sqsupseteq in ni notin mid nmid parallel nparallel perp models vdash dashv asymp doteq
        bowtie smile frown lesssim gtrsim leqslant geqslant coloneqq triangleq lessgtr gtrless vDash Vdash to gets
        mapsto longmapsto leftarrow rightarrow leftrightarrow Leftarrow Rightarrow Leftrightarrow longleftarrow
        longrightarrow longleftrightarrow Longleftarrow Longrightarrow Longleftrightarrow iff implies impliedby
        uparrow downarrow updownarrow Uparrow Downarrow Updownarrow nearrow searrow swarrow nwarrow hookrightarrow
        hookleftarrow rightharpoonup rightharpoondown leftharpoonup leftharpoondown rightleftharpoons xrightarrow
        xleftarrow leadsto rightsquigarrow twoheadrightarrow circlearrowleft circlearrowright upharpoonright left
        right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr langle rangle lfloor rfloor
        lceil rceil lvert rvert lVert rVert vert Vert lbrace rbrace lbrack rbrack backslash ulcorner urcorner
        llcorner lrcorner hat widehat tilde widetilde bar overline underline vec overrightarrow overleftarrow dot
        ddot dddot acute grave breve check mathring overbrace underbrace overset underset stackrel substack boxed
        cancel bcancel xcancel not mathrm mathbf mathit mathsf mathtt mathcal mathbb mathfrak mathscr mathnormal
        boldsymbol bm pmb operatorname text textbf textit textrm textsf texttt textnormal rm bf it sf tt cal
        displaystyle textstyle scriptstyle scriptscriptstyle limits nolimits quad qquad thinspace medspace
        thickspace enspace negthinspace hspace vspace phantom hphantom vphantom smash ldots cdots vdots ddots dots
        dotsc dotsb dotsm dotsi hline cr nonumber notag tag atop choose over begin end
        """,
    )
)
_ENVIRONMENTS = frozenset(
    re.findall(
        r"\S+",
        """
        matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix cases array aligned alignedat align align* equation
        equation* gather gather* gathered split multline multline* eqnarray eqnarray* subarray
        """,
    )
)
_COMMAND = re.compile(r"\\([A-Za-z]+|.|$)", re.DOTALL)
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{([^}]*)\}")
_LIMIT = 2000


def is_safe_formula(source: str) -> bool:
    """Whether every command and environment in it is known to draw mathematics and nothing else."""
    if len(source) > _LIMIT or re.search(r"[%#~`<>$\x00]|\n\s*\n", source):
        return False
    if any(command == "" or (command.isalpha() and command not in _COMMANDS) for command in _COMMAND.findall(source)):
        return False
    names = _ENVIRONMENT.findall(source)
    marks = len(re.findall(r"\\(?:begin|end)(?![A-Za-z])", source))
    return len(names) == marks and all(name in _ENVIRONMENTS for name in names) and _balanced(source)


def _balanced(source: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", source.replace("\\\\", "")):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def _drawn(source: str) -> str:
    """The formula without the two characters that could begin or end markup."""
    return source.strip().replace("<", r"\lt ").replace(">", r"\gt ")


def _inline(state: StateInline, silent: bool) -> bool:
    source, start = state.src, state.pos
    if source.startswith("$$", start):
        opening, closing = "$$", "$$"
    elif source.startswith("$", start):
        opening, closing = "$", "$"
    elif source.startswith("\\(", start):
        opening, closing = "\\(", "\\)"
    elif source.startswith("\\[", start):
        opening, closing = "\\[", "\\]"
    else:
        return False
    begin = start + len(opening)
    end = source.find(closing, begin, min(state.posMax, begin + _LIMIT))
    if end < 0:
        return False
    body = source[begin:end]
    if opening == "$":
        after = source[end + 1 : end + 2]
        # Pandoc's rule, which leaves "it costs $5 or $6" alone.
        if not body or body[0].isspace() or body[-1].isspace() or body[-1] == "\\" or after.isdigit() or "`" in body:
            return False
    elif not body.strip():
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content = _drawn(body)
        token.markup = "$$" if opening in ("$$", "\\[") else "$"
    state.pos = end + len(closing)
    return True


def _block(state: StateBlock, line: int, end_line: int, silent: bool) -> bool:
    if state.is_code_block(line):
        return False
    first = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
    opening = first[:2]
    closing = {"$$": "$$", "\\[": "\\]"}.get(opening)
    if closing is None:
        return False
    body, last = [first[2:]], line
    while closing not in body[-1]:
        last += 1
        if last >= end_line or state.isEmpty(last) or state.sCount[last] < state.blkIndent:
            return False
        body.append(state.src[state.bMarks[last] + state.tShift[last] : state.eMarks[last]])
    content, _, rest = body[-1].partition(closing)
    if rest.strip():
        return False
    if silent:
        return True
    body[-1] = content
    token = state.push("formula_block", "", 0)
    token.content = _drawn("\n".join(body))
    token.markup = "$$"
    token.block = True
    token.map = [line, last + 1]
    state.line = last + 1
    return True


def formulas(markdown: MarkdownIt) -> None:
    """A markdown-it plugin: tokens ``formula`` and ``formula_block`` for ``$``, ``$$``, ``\\(`` and ``\\[``."""
    markdown.inline.ruler.before("escape", "formula", _inline)
    markdown.block.ruler.before("fence", "formula_block", _block, {"alt": ["paragraph", "reference", "blockquote"]})
