// A link into what is folded unfolds it; what scrolls sideways can be scrolled by keyboard.
(function () {
  function unfold() {
    var id = decodeURIComponent(location.hash.slice(1));
    var found = id && document.getElementById(id);
    if (!found) return;
    for (var at = found; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    found.scrollIntoView();
  }
  function reachable() {
    document.querySelectorAll(".wide").forEach(function (box) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    });
  }
  addEventListener("hashchange", unfold);
  addEventListener("resize", reachable);
  document.addEventListener("DOMContentLoaded", function () {
    reachable();
    unfold();
  });
})();
