"use strict";
(function () {
  var root = document.documentElement;
  var bar = document.querySelector(".buttons");
  function button(text, label, action, parent) {
    var made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    if (label) made.setAttribute("aria-label", label);
    made.addEventListener("click", function () { action(made); });
    parent.appendChild(made);
    return made;
  }
  function every(selector, action) { Array.prototype.forEach.call(document.querySelectorAll(selector), action); }

  var folded = true;
  if (document.querySelector("details")) {
    button("Expand all", "", function (made) {
      every("details", function (one) { one.open = folded; });
      folded = !folded;
      made.textContent = folded ? "Expand all" : "Collapse all";
    }, bar);
  }
  function dark() {
    var chosen = root.getAttribute("data-theme");
    return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  }
  var theme = button(dark() ? "Light" : "Dark", "Switch between light and dark", function (made) {
    var next = dark() ? "light" : "dark";
    root.setAttribute("data-theme", next);
    made.textContent = next === "dark" ? "Light" : "Dark";
  }, bar);
  theme.className = "theme";

  every(".command", function (box) {
    box.classList.add("copies");
    button("Copy", "Copy the command", function (made) {
      var range = document.createRange();
      range.selectNodeContents(box.querySelector("code"));
      var selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      function done() {
        made.textContent = "Copied";
        window.setTimeout(function () { made.textContent = "Copy"; }, 1500);
      }
      if (navigator.clipboard && window.isSecureContext) {
        navigator.clipboard.writeText(box.querySelector("code").textContent).then(done, function () {});
      } else if (document.execCommand("copy")) {
        done();
      }
    }, box);
  });
  window.addEventListener("beforeprint", function () { every("details", function (one) { one.open = true; }); });
})();
