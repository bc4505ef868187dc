// Following: no question is asked while the tab is hidden, and none twice at once.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden && event.target.hasAttribute("data-live")) {
    event.preventDefault();
  }
});
