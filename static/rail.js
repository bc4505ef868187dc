// The step rail: a step that the page shows already is scrolled to, not loaded again, and the one
// being read is marked.

const rail = document.querySelector(".rail");

const linkOf = (step) => rail.querySelector(`a[href$="#${step.id}"]`);

const mark = () => {
  let read = null;
  for (const step of document.querySelectorAll(".step[id]")) {
    if (step.getBoundingClientRect().top > 160) break;
    read = step;
  }
  const now = read && linkOf(read);
  for (const link of rail.querySelectorAll("[aria-current]")) {
    if (link !== now) link.removeAttribute("aria-current");
  }
  if (!now || now.hasAttribute("aria-current")) return;
  now.setAttribute("aria-current", "location");
  const box = rail.getBoundingClientRect();
  const place = now.getBoundingClientRect();
  if (place.top < box.top || place.bottom > box.bottom) {
    rail.scrollTop += place.top - box.top - box.height / 2;
  }
};

let waiting = false;
const later = () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    mark();
  });
};

if (rail && rail.checkVisibility()) {
  rail.addEventListener("click", (event) => {
    const link = event.target.closest("a.rail-step");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const step = document.getElementById(link.hash.slice(1));
    if (!step) return;
    event.preventDefault();
    history.replaceState(history.state, "", link.href);
    step.scrollIntoView();
    step.querySelector("a")?.focus({ preventScroll: true });
  });
  document.addEventListener("scroll", later, { passive: true });
  document.addEventListener("htmx:afterSettle", later);
  later();
}
