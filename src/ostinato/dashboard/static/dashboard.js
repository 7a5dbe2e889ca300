"use strict";
/* Everything can be read without this file. It adds: news of a watched page, and keys to go from turn to turn. */
(() => {
  let source = null;
  let watched = "";

  const say = (text) => {
    const place = document.querySelector("[data-live-state]");
    if (place) place.textContent = text;
  };

  const fetchNew = async () => {
    const old = document.getElementById("content");
    const open = new Set([...old.querySelectorAll("details")].map((each, place) => (each.open ? place : -1)));
    const response = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const next = page.getElementById("content");
    if (!next) return;
    next.querySelectorAll("details").forEach((each, place) => { if (open.has(place)) each.open = true; });
    old.replaceWith(document.adoptNode(next));
    if (window.htmx) window.htmx.process(document.getElementById("content"));
    say("live: something changed just now");
  };

  const watch = () => {
    const content = document.getElementById("content");
    const address = content ? content.dataset.live || "" : "";
    if (address === watched) return;
    if (source) source.close();
    source = null;
    watched = address;
    if (!address) return;
    source = new EventSource(address);
    source.addEventListener("ready", () => say("live"));
    source.addEventListener("changed", fetchNew);
    source.addEventListener("error", () => say("not live: reload to see what is new"));
  };

  const step = (by) => {
    const turns = [...document.querySelectorAll("article.turn")];
    if (!turns.length) return;
    const here = turns.findIndex((each) => each === document.activeElement || each.contains(document.activeElement));
    const next = turns[Math.min(turns.length - 1, Math.max(0, here + by))];
    next.focus();
    next.scrollIntoView({ block: "start" });
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) return;
    if (event.key === "j") step(1);
    if (event.key === "k") step(-1);
  });
  document.addEventListener("htmx:afterSettle", watch);
  addEventListener("pagehide", () => { if (source) source.close(); watched = ""; source = null; });
  addEventListener("pageshow", watch);
  watch();
})();
