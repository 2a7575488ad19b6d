"""The looks: one scoped style sheet made of JupyterLab's colour variables, with fallbacks for pages without them.

Where a page drops ``<style>`` (an untrusted notebook) the elements alone must read well: headings, details, pre.
"""

from __future__ import annotations

import re

_SHEET = """
.mxc{--mxc-fg:var(--jp-content-font-color1,var(--vscode-editor-foreground,CanvasText));
--mxc-dim:color-mix(in srgb,var(--mxc-fg) 72%,transparent);
--mxc-line:var(--jp-border-color2,var(--vscode-panel-border,#8886));--mxc-bg:var(--jp-layout-color1,transparent);
--mxc-soft:var(--jp-layout-color2,#8881);--mxc-ok:var(--jp-success-color1,#2e7d32);--mxc-bad:var(--jp-error-color1,#c62828);
--mxc-ask:var(--jp-warn-color1,#b26a00);--mxc-run:var(--jp-brand-color1,#1976d2);
color:var(--mxc-fg);font-family:var(--jp-content-font-family,system-ui,sans-serif);
font-size:var(--jp-content-font-size1,14px);line-height:1.5;overflow-wrap:anywhere;unicode-bidi:isolate;max-width:100%}
.mxc *{box-sizing:border-box}
.mxc-rec{container-type:inline-size;border:1px solid var(--mxc-line);border-radius:6px;margin:2px 0;overflow:hidden}
.mxc-head{display:flex;flex-wrap:wrap;gap:0 10px;align-items:baseline;padding:3px 10px;background:var(--mxc-soft);
color:var(--mxc-dim);font-size:12px;line-height:20px}
.mxc-head b{color:var(--mxc-fg);font-weight:600}
.mxc-body{max-height:38em;overflow:auto;padding:4px 10px}
.mxc-foot{padding:4px 10px;border-top:1px solid var(--mxc-line);font-size:13px}
.mxc-i{display:inline-block;width:1.2em;text-align:center;font-weight:700;flex:none}
.mxc-ok .mxc-i{color:var(--mxc-ok)}.mxc-bad .mxc-i{color:var(--mxc-bad)}
.mxc-ask .mxc-i{color:var(--mxc-ask)}.mxc-run .mxc-i{color:var(--mxc-run)}
.mxc-call{margin:3px 0;border:1px solid var(--mxc-line);border-radius:4px;font-size:13px;background:var(--mxc-bg)}
.mxc-call>summary,.mxc-row{display:flex;gap:6px;align-items:baseline;padding:1px 8px;cursor:pointer;list-style:none;
min-width:0}
.mxc-row{cursor:default}
.mxc-call>summary::-webkit-details-marker{display:none}
.mxc-call>summary::after{content:"\\203a";margin-left:4px;color:var(--mxc-dim);flex:none}
.mxc-call[open]>summary::after{transform:rotate(90deg)}
.mxc-call>summary:focus-visible,.mxc [tabindex]:focus-visible{outline:2px solid var(--mxc-run);outline-offset:-2px}
.mxc-name{font-family:var(--jp-code-font-family,monospace);font-weight:600;flex:none}
.mxc-sum{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;flex:1 1 auto;min-width:3em;color:var(--mxc-dim)}
.mxc-time{margin-left:auto;color:var(--mxc-dim);white-space:nowrap;font-size:12px;flex:none}
.mxc-in{padding:0 8px 6px}
.mxc.mxc pre,.mxc.mxc code{font-family:var(--jp-code-font-family,monospace);font-size:12px;color:inherit}
.mxc.mxc pre{margin:4px 0;padding:6px 8px;max-height:18em;overflow:auto;white-space:pre-wrap;
word-break:normal;overflow-wrap:anywhere;background:var(--mxc-soft);
border-radius:4px;line-height:1.4}
.mxc.mxc pre code{background:none;padding:0}
.mxc.mxc :not(pre)>code{background:var(--mxc-soft);padding:1px 4px;border-radius:3px}
.mxc-args{padding:2px 0;font-size:13px}.mxc.mxc .mxc-args code{white-space:pre-wrap}
.mxc-dim{color:var(--mxc-dim);font-size:12px}
.mxc-warn{color:var(--mxc-ask)}.mxc-err{color:var(--mxc-bad)}
.mxc-add,.mxc-del,.mxc-hunk{display:block;min-height:1.4em}
.mxc-add{background:#2da44e26}.mxc-del{background:#cf222e26}.mxc-hunk{color:var(--mxc-dim)}
.mxc-esc{background:var(--mxc-bad);color:#fff;border-radius:2px;padding:0 2px}
.mxc.mxc .mxc-text{padding:5px 0}.mxc.mxc .mxc-text>:first-child{margin-top:0}
.mxc.mxc .mxc-text>:last-child{margin-bottom:0}
.mxc.mxc :is(h1,h2,h3,h4,h5,h6){font-size:1.1em;margin:.8em 0 .3em;line-height:1.4;
font-weight:600}
.mxc.mxc :is(p,ul,ol){margin:.4em 0}
.mxc.mxc blockquote{margin:.4em 0;padding:0 0 0 10px;border:0;border-left:4px solid var(--mxc-line);color:inherit}
.mxc.mxc table{
width:max-content;max-width:100%;font-size:inherit;border-collapse:collapse;margin:.4em 0;display:block;
overflow:auto}
.mxc.mxc :is(th,td){border:1px solid var(--mxc-line);padding:2px 8px;text-align:left;line-height:1.5;
white-space:nowrap;overflow-wrap:break-word;max-width:48em}
.mxc.mxc .mxc-long{white-space:normal;min-width:15em}
.mxc.mxc :is(th,td)>code{display:inline-block;width:max-content;max-width:64ch;vertical-align:top;white-space:normal;
overflow-wrap:anywhere}
.mxc.mxc tbody tr:nth-child(even){background:var(--mxc-soft)}
.mxc.mxc a{color:var(--jp-content-link-color,#0b6bcb)}
.mxc-spin{display:inline-block;width:.8em;height:.8em;border:2px solid var(--mxc-run);border-right-color:transparent;
border-radius:50%;animation:mxc-turn 1s linear infinite}
@keyframes mxc-turn{to{transform:rotate(360deg)}}
@media (prefers-reduced-motion:reduce){.mxc-spin{animation:none}}
@container (max-width:30em){.mxc-opt,.mxc-head .mxc-opt{display:none}.mxc-body{padding:4px 6px}}
@media print{.mxc-body,.mxc pre{max-height:none;overflow:visible}}
.mxc-sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
"""

_LIVE = """
.mxc-live.widget-vbox{container-type:inline-size;border:1px solid var(--jp-border-color2,#8886);
border-radius:6px;overflow:hidden;margin:2px 0}
.mxc-live .widget-html-content{line-height:inherit;overflow:visible}
.mxc-live .widget-html{margin:0;height:auto;min-height:0}
.mxc-live .jupyter-button{border-radius:4px;height:auto;min-height:28px;line-height:26px;padding:0 12px;width:auto;
margin:2px;flex:0 0 auto;max-width:100%;white-space:normal;border:1px solid var(--jp-border-color1,#8888)}
.mxc-live .jupyter-button:is(.mod-success,.mod-danger){border-color:transparent}
.mxc-live .jupyter-button:focus-visible{outline:2px solid var(--jp-brand-color1,#1976d2);outline-offset:1px}
.mxc-bar{background:var(--jp-layout-color2,#8881);align-items:center}
.mxc-bar .widget-html-content{min-width:0}
.mxc-aside{margin:0 10px 4px 34px}
.mxc-end{display:flex;justify-content:flex-end;width:fit-content;max-width:calc(100% - 44px);
overflow:hidden;white-space:nowrap;font-style:italic}
.mxc-asks{border-left:3px solid var(--jp-warn-color1,#b26a00);padding:4px 8px}
.mxc-asks pre{max-height:20em}
.mxc-stream{padding:4px 10px}.mxc-live .mxc-stream>.widget-html{flex:0 0 auto}
"""


def _minified(sheet: str) -> str:
    return re.sub(r"\n", "", sheet)


STYLE = f"<style>{_minified(_SHEET)}</style>"
"""For records and every HTML of ours."""

LIVE_STYLE = f"<style>{_minified(_SHEET + _LIVE)}</style>"
"""For the live view: the same, and what its widgets need."""
