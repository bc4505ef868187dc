// Following a session: nothing is asked for while the tab is hidden or the part of the page is not
// shown; on return it is asked for at once; a server that does not answer is said.

const connection = document.querySelector(".connection");

const said = (trouble) => {
  if (connection) connection.hidden = !trouble;
};

document.addEventListener("htmx:beforeRequest", (event) => {
  const element = event.target;
  if (!element.hasAttribute("data-live")) return;
  if (document.hidden || !element.checkVisibility()) event.preventDefault();
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  for (const element of document.querySelectorAll("[data-live]")) {
    window.htmx.trigger(element, "look");
  }
});

document.addEventListener("htmx:sendError", () => said(true));
document.addEventListener("htmx:responseError", (event) => said(event.detail.xhr.status >= 500));
document.addEventListener("htmx:afterOnLoad", () => said(false));
