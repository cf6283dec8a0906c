#include "reports/html_assets.hpp"

namespace fathom {

std::string_view html_style() {
  return R"css(*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1400px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:1.75rem;line-height:1.25;margin:.4em 0 .6em;overflow-wrap:anywhere}
h2{font-size:1.3rem;margin:2em 0 .6em;padding-bottom:.25em;border-bottom:1px solid var(--grid)}
h3{font-size:1.08rem;margin:1.6em 0 .5em}
p{max-width:75ch;margin:.7em 0;overflow-wrap:anywhere}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.88em}
code{background:var(--soft);padding:.1em .3em;border-radius:4px}
pre{background:var(--soft);padding:12px 14px;border-radius:8px;white-space:pre-wrap;overflow-wrap:anywhere}pre .o{white-space:nowrap}
.note{border-left:4px solid var(--c0);background:var(--soft);padding:8px 14px;margin:10px 0;border-radius:0 8px 8px 0;max-width:80ch;overflow-wrap:anywhere}
.note.warning{border-color:var(--c1)}.note.skipped{border-color:var(--c7)}
.note b{margin-right:.4em}
.scroll{overflow-x:auto;width:fit-content;min-width:min(100%,56rem);max-width:100%;max-height:75vh;margin:8px 0 4px;border:1px solid var(--grid);border-radius:8px;background:linear-gradient(to top,var(--bg) 40%,transparent) bottom/100% 40px,linear-gradient(to right,var(--bg) 40%,transparent) left/40px 100%,linear-gradient(to left,var(--bg) 40%,transparent) right/40px 100%,linear-gradient(to top,var(--mf),transparent) bottom/100% 16px,linear-gradient(to right,var(--mf),transparent) left/16px 100%,linear-gradient(to left,var(--mf),transparent) right/16px 100%;background-repeat:no-repeat;background-attachment:local,local,local,scroll,scroll,scroll}
.scroll.prose{width:auto;max-height:none}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:8px 12px}
th,td{padding:6px 8px;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
tbody tr:last-child td,tfoot tr:last-child td{border-bottom:0}
td.n,th.n{text-align:right;white-space:nowrap}
td.p,td.k{white-space:nowrap}
td.p wbr{display:none}
td.w{min-width:28ch}
thead th{position:sticky;top:0;z-index:2;background:var(--soft);font-weight:600;white-space:nowrap}
tbody tr:hover td{background:var(--soft)}
tfoot td,tr.total td{font-weight:600;border-top:2px solid var(--grid)}
.grouped .gc{display:none}
tr.group{display:none}.grouped tr.group{display:table-row}
tr.group th,tr.group th:first-child{background:var(--soft);padding:5px 8px}tr.group span{position:sticky;left:9px}
td.s{color:var(--dim);font-style:italic}
th button{all:unset;cursor:pointer;font-weight:600}
th button:focus-visible{outline:2px solid var(--c0);outline-offset:2px;border-radius:3px}
th button::after{content:"\2195";opacity:.35;margin-left:.2em;font-size:.85em}
th[aria-sort=ascending] button::after{content:"\2191";opacity:1}
th[aria-sort=descending] button::after{content:"\2193";opacity:1}
.v-within{color:var(--c2)}.v-slow,.v-fast{color:var(--c1)}.v-light{color:var(--c3);font-weight:600}
.caption{max-width:75ch;color:var(--dim);font-size:.88rem;margin:4px 0 16px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:10px 0;font-variant-numeric:tabular-nums}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
.source{color:var(--dim);font-size:.88em}
figure{margin:18px 0}
figure svg{display:block;max-width:100%;height:auto}
.narrow{display:none}
.frames input{position:absolute;opacity:0}
.frames label{display:inline-block;border:1px solid var(--grid);border-radius:999px;padding:3px 14px;margin:0 6px 8px 0;cursor:pointer;font-size:.9rem}
.frames input:checked+label{background:var(--c0);border-color:var(--c0);color:var(--bg)}
.frames input:focus-visible+label{outline:2px solid var(--fg);outline-offset:2px}
.frames .frame{display:none}
@media (max-width:640px){
body{font-size:15px}main{padding:14px 14px 48px}h1{font-size:1.4rem}
.wide{display:none}.narrow{display:block}
th,td{padding:6px 9px}
dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}
th:first-child,td:first-child,.grouped .h{position:sticky;left:0;z-index:1;background:var(--bg)}
thead th:first-child,.grouped thead th.h{z-index:3;background:var(--soft)}
td.p{min-width:38vw;max-width:44vw;white-space:normal}
td.w{min-width:34ch}
td.p wbr{display:inline}
table.prose thead{display:none}
table.prose,table.prose tbody,table.prose tr,table.prose td{display:block}
table.prose tr{border-bottom:1px solid var(--grid);padding:8px 10px}
table.prose td,table.prose td:first-child,table.prose td.h{position:static;border:0;padding:0;max-width:none;min-width:0;white-space:normal;text-align:left}
table.prose td[data-l]:empty{display:none}table.prose td[data-l]::before{content:attr(data-l) ": ";color:var(--dim)}
table.prose td+td{color:var(--dim)}table.prose td+td+td{color:var(--fg)}
}
@media print{.scroll{max-height:none;overflow:visible;border:0}thead th{position:static}th button::after{content:none}}
)css";
}

// Numbers sort by the exact value in data-v, missing ones last in both directions; totals stay at the end. A table that was shown in groups becomes one list,
// in which every row says again what it is of.
std::string_view html_script() {
  return R"js(document.querySelectorAll("table.sortable").forEach(function(table){
var heads=table.tHead.rows[0].cells;
Array.prototype.forEach.call(heads,function(th,column){
var button=document.createElement("button");button.type="button";button.textContent=th.textContent;
th.textContent="";th.appendChild(button);
button.addEventListener("click",function(){
var numeric=th.classList.contains("n"),now=th.getAttribute("aria-sort");
var direction=now==="descending"?1:now==="ascending"?-1:numeric?-1:1;
Array.prototype.forEach.call(heads,function(other){other.removeAttribute("aria-sort")});
th.setAttribute("aria-sort",direction>0?"ascending":"descending");
var body=table.tBodies[0],rows=[],last=[];
table.classList.remove("grouped");
Array.prototype.forEach.call(table.querySelectorAll("tbody tr:not(.group)"),function(row,i){
if(row.classList.contains("total")){last.push({row:row});return}
var cell=row.cells[column],v=cell.getAttribute("data-v");
rows.push({row:row,i:i,v:numeric?(v===null?NaN:Number(v)):cell.textContent})});
rows.sort(function(a,b){
if(numeric){var na=isNaN(a.v),nb=isNaN(b.v);if(na||nb)return na&&nb?a.i-b.i:na?1:-1;return direction*(a.v-b.v)||a.i-b.i}
return direction*a.v.localeCompare(b.v,undefined,{numeric:true})||a.i-b.i});
rows.concat(last).forEach(function(entry){body.appendChild(entry.row)})})})});
)js";
}

}  // namespace fathom
