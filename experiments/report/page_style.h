// The style sheet of pages.
#pragma once

#include <string_view>

namespace ttr::report {

inline constexpr std::string_view kPageStyle = R"css(
:root{color-scheme:light dark;--ground:#fff;--ink:#24292f;--muted:#646c76;--line:#e6e8eb;
--panel:#f6f7f9;--accent:#0063a0;--shade:rgba(0,0,0,.04);
--sans:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
--serif:Charter,"Bitstream Charter","Iowan Old Style","Source Serif 4",Georgia,"DejaVu Serif",serif;
--mono:ui-monospace,"SF Mono","Cascadia Code",Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media (prefers-color-scheme:dark){:root{--ground:#14171b;--ink:#e6e8eb;--muted:#9aa3ae;
--line:#2c323a;--panel:#1b1f25;--accent:#6cc1f5;--shade:rgba(255,255,255,.05)}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--ground);color:var(--ink);font:17px/1.6 var(--sans);
text-rendering:optimizeLegibility;overflow-wrap:break-word}
header,main,footer{max-width:49.5rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:4.5rem}
h1{font-size:2.5rem;line-height:1.12;letter-spacing:-.022em;font-weight:700;margin:0 0 .9rem;
text-wrap:balance}
.lead{font-size:1.2rem;line-height:1.55;color:var(--muted);margin:0;max-width:38rem;
text-wrap:pretty}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.2rem;margin:1.6rem 0 0;
max-width:40rem;font-size:.94rem;line-height:1.5}
dt{font-weight:600}dd{margin:0;color:var(--muted)}
nav{margin:2rem 0 0;padding:0}
nav ol{list-style:none;display:flex;flex-wrap:wrap;gap:.35rem 1.4rem;margin:0;padding:0;
font-size:.94rem}
a{color:var(--accent);text-decoration:underline;text-decoration-thickness:1px;
text-underline-offset:.2em;text-decoration-color:color-mix(in srgb,currentColor 35%,transparent)}
a:hover{text-decoration-color:currentColor}
section{margin-top:3.25rem;padding-top:2.75rem;border-top:1px solid var(--line)}
h2{font-size:1.55rem;line-height:1.25;letter-spacing:-.014em;font-weight:650;margin:0 0 .6rem;
text-wrap:balance}
p{margin:0 0 .9rem;max-width:40rem;text-wrap:pretty}
code,pre{font-family:var(--mono);font-size:.86em;font-variant-ligatures:none}
code{background:var(--panel);border-radius:4px;padding:.1em .32em}
figure{margin:1.9rem 0}
/* Pictures have an inner margin of 8 of their 760 or 380 units: text stands under text. */
figure svg{display:block;width:calc(100% + 16px);height:auto;max-width:776px;margin-left:-8px}
figure .narrow{display:none}
figcaption{margin-top:.6rem;color:var(--muted);font-size:.92rem;line-height:1.5;max-width:40rem}
.scroll{overflow-x:auto;margin:1.6rem 0;-webkit-overflow-scrolling:touch}
.scroll:focus-visible,summary:focus-visible,a:focus-visible{outline:2px solid var(--accent);
outline-offset:3px;border-radius:3px}
table{border-collapse:collapse;font-size:.9rem;line-height:1.4;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:0 0 .6rem}
th,td{padding:.42rem 0 .42rem 1.6rem;text-align:left;vertical-align:baseline}
th:first-child,td:first-child{padding-left:0;min-width:8rem}
th{font-weight:500;color:var(--muted);white-space:nowrap}
thead tr{border-bottom:1px solid var(--muted)}
tbody tr+tr{border-top:1px solid var(--line)}
tbody tr:hover{background:var(--shade)}
.n{text-align:right;white-space:nowrap}
details{margin:1rem 0}
summary{cursor:pointer;color:var(--muted);font-size:.94rem;padding:.3rem 0;width:fit-content}
summary:hover{color:var(--ink)}
details .scroll{margin-top:.8rem}
.command{margin:1.6rem 0 0}
.command span{display:block;color:var(--muted);font-size:.85rem;margin-bottom:.4rem}
pre{margin:0;padding:.8rem 1rem;background:var(--panel);border:1px solid var(--line);
border-radius:8px;overflow-x:auto;line-height:1.5;tab-size:2}
.command pre{white-space:pre-wrap;overflow-wrap:anywhere}
.command pre::before{content:"$ ";color:var(--muted);user-select:none}
footer{margin-top:4rem;padding-top:1.5rem;padding-bottom:4rem;color:var(--muted);font-size:.92rem}
footer div{border-top:1px solid var(--line);padding-top:1.5rem}
footer a{display:inline-block;margin-right:1.2rem}
@media (max-width:640px){body{font-size:16px}dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:.5rem}th,td{padding-left:1rem}header{padding-top:2.5rem}h1{font-size:1.95rem}
.lead{font-size:1.08rem}section{margin-top:2.25rem;padding-top:2rem}h2{font-size:1.35rem}
figure.both .wide{display:none}figure.both .narrow{display:block}
figure.both .narrow svg{max-width:456px}
figure:not(.both) .wide{overflow-x:auto}figure:not(.both) .wide svg{min-width:620px}}
@media print{:root{color-scheme:light}body{font-size:11pt}section{break-inside:avoid-page}
nav{display:none}}
)css";

}  // namespace ttr::report
