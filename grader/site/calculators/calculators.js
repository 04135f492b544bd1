// Forms, results and the worker of the calculators. A classic script, so that a page opened from a
// disk works: there Chromium fetches nothing, and starts a worker from a Blob only.
(() => {
  "use strict";
  const LONGEST_SHARED = 6000;

  // --- the worker: Pyodide and the labs' files, handed over as bytes ---------------------------

  // Runs in the worker. Its text follows Pyodide's two scripts in the Blob.
  function inWorker() {
    let ready;
    self.onmessage = async (event) => {
      const { id, start, name, texts } = event.data;
      try {
        if (start) {
          ready = boot(start);
          await ready;
          self.postMessage({ id });
          return;
        }
        const pyodide = await ready;
        const call = pyodide.globals.get("answer_in_browser");
        const answer = call(name, JSON.stringify(texts));
        call.destroy();
        self.postMessage({ id, answer });
      } catch (error) {
        self.postMessage({ id, failure: String(error && error.message || error) });
      }
    };

    async function boot({ files, sources }) {
      const kinds = { wasm: "application/wasm", json: "application/json", zip: "application/zip" };
      // All that Pyodide asks for is here; nothing leaves the page.
      self.fetch = async (address) => {
        const name = String(address && address.url || address).split("/").pop();
        if (!(name in files)) throw new Error(`Pyodide asked for ${name}, which is not here.`);
        return new Response(files[name], { headers: { "Content-Type": kinds[name.split(".").pop()] } });
      };
      const pyodide = await self.loadPyodide({ indexURL: "https://pyodide.invalid/", checkAPIVersion: false });
      for (const [path, text] of Object.entries(sources)) {
        const folders = path.split("/").slice(0, -1);
        pyodide.FS.mkdirTree(["/labs", ...folders].join("/"));
        pyodide.FS.writeFile(`/labs/${path}`, text);
      }
      pyodide.runPython(
        "import sys; sys.path.insert(0, '/labs')\n" +
        "from grader.site.calculators.every_calculator import answer_in_browser");
      return pyodide;
    }
  }

  function loadScript(address) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = address;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${address} cannot be loaded.`));
      document.head.append(script);
    });
  }

  async function unpacked(base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  class Engine {
    constructor(files) {
      this.files = files;
      this.waiting = new Map();
      this.last = 0;
    }

    async start(tell) {
      if (typeof DecompressionStream !== "function" || typeof WebAssembly !== "object") {
        throw new Error("This browser is too old for it: it needs WebAssembly and DecompressionStream.");
      }
      tell("Loading Python: reading its files (1 of 3) …");
      if (!self.INFRALENS_PYODIDE) await loadScript(this.files + "pyodide-runtime.js");
      if (!self.INFRALENS_CALCULATORS_DATA) await loadScript(this.files + "calculators-data.js");
      tell("Loading Python: unpacking it (2 of 3) …");
      const text = new TextDecoder();
      const parts = {};
      for (const [name, data] of Object.entries(self.INFRALENS_PYODIDE)) parts[name] = await unpacked(data);
      const sources = JSON.parse(text.decode(await unpacked(self.INFRALENS_CALCULATORS_DATA)));
      const scripts = ["pyodide.asm.js", "pyodide.js"].map((name) => text.decode(parts[name]));
      const plain = scripts.map((script) => script.replace(/\/\/# sourceMappingURL=.*/g, ""));
      const code = [...plain, `(${inWorker})();`].join("\n;\n");
      const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
      tell("Loading Python: starting it (3 of 3) …");
      this.worker = new Worker(address);
      this.worker.onmessage = ({ data }) => {
        const { resolve, reject } = this.waiting.get(data.id);
        this.waiting.delete(data.id);
        if (data.failure) reject(new Error(data.failure));
        else resolve(data.answer);
      };
      const broken = new Promise((_, reject) => {
        this.worker.onerror = (event) => reject(new Error(event.message || "the worker cannot start"));
      });
      const files = {};
      for (const name of ["pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"]) files[name] = parts[name];
      await Promise.race([this.send({ start: { files, sources } }), broken]);
      URL.revokeObjectURL(address);
    }

    send(message) {
      return new Promise((resolve, reject) => {
        const id = ++this.last;
        this.waiting.set(id, { resolve, reject });
        this.worker.postMessage({ id, ...message });
      });
    }

    async ask(name, texts) {
      return JSON.parse(await this.send({ name, texts }));
    }
  }

  // --- a form and its results -------------------------------------------------------------------

  function element(kind, attributes = {}, ...children) {
    const made = document.createElement(kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  class Form {
    constructor(root, engine) {
      this.root = root;
      this.engine = engine;
      this.name = root.dataset.calculator;
      this.form = root.querySelector("form");
      this.fields = [...this.form.elements].filter((one) => one.name);
      this.defaults = Object.fromEntries(this.fields.map((one) => [one.name, this.textOf(one)]));
      this.asked = 0;
      this.unknown = "";
      this.readHash();
      this.showFields();
      this.form.addEventListener("submit", (event) => event.preventDefault());
      this.form.addEventListener("input", () => {
        this.unknown = "";
        this.showFields();
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.calculate(), 150);
      });
      addEventListener("hashchange", () => {
        if (!root.isConnected || location.hash === this.written) return;
        if (this.readHash()) {
          this.showFields();
          this.calculate();
        }
      });
      root.querySelector(".calculator-share").addEventListener("click", () => this.share());
    }

    textOf(field) {
      if (field.type === "checkbox") return field.checked ? "true" : "";
      return field.value;
    }

    texts() {
      return Object.fromEntries(this.fields.map((one) => [one.name, this.textOf(one)]));
    }

    /** Takes the values that the address brings; other anchors are left alone. */
    readHash() {
      if (!location.hash.includes("=")) return false;
      const given = new URLSearchParams(location.hash.slice(1));
      for (const field of this.fields) {
        const text = given.get(field.name) ?? this.defaults[field.name];
        if (field.type === "checkbox") field.checked = text === "true";
        else if (field.tagName !== "SELECT") field.value = text;
        else if ([...field.options].some((one) => one.value === text)) field.value = text;
        else {
          field.value = this.defaults[field.name];
          this.unknown = `The link asks for ${text.slice(0, 60)}, which is not among the choices.`;
        }
      }
      return true;
    }

    writeHash() {
      const given = new URLSearchParams();
      for (const field of this.fields) {
        const text = this.textOf(field);
        const counts = !field.closest("[hidden]") && text.length <= LONGEST_SHARED;
        if (counts && text !== this.defaults[field.name]) given.set(field.name, text);
      }
      const hash = String(given) ? `#${given}` : "";
      if (hash === "" && !location.hash.includes("=")) return;
      this.written = hash;
      history.replaceState(history.state, "", hash || location.pathname + location.search);
    }

    showFields() {
      const texts = this.texts();
      for (const box of this.form.querySelectorAll("[data-shown-if]")) {
        box.hidden = texts[box.dataset.shownIf] !== box.dataset.shownValue;
      }
    }

    /** What a screen reader hears; `seen` where nothing else on the page shows it. */
    say(text, seen = true) {
      const status = this.root.querySelector(".calculator-status");
      status.classList.toggle("calculator-heard", !seen);
      if (status.textContent !== text) status.textContent = text;
    }

    fail(text) {
      const failure = this.root.querySelector(".calculator-failure");
      failure.textContent = text;
      failure.hidden = !text;
    }

    async calculate() {
      const mine = ++this.asked;
      this.writeHash();
      let answer;
      try {
        answer = await this.engine.ask(this.name, this.texts());
      } catch (error) {
        if (mine !== this.asked) return;
        this.root.querySelector(".calculator-result").hidden = true;
        this.say("");
        this.fail(`The calculation failed: ${error.message.trim().split("\n").pop()}`);
        return;
      }
      if (mine !== this.asked) return;
      this.fail("");
      this.showError(answer);
      if (answer.lines) this.showResult(answer);
      this.root.dataset.answered = String(mine);
    }

    showError({ wrong, sentence }) {
      for (const field of this.fields) {
        const bad = field.name === wrong;
        if (bad) field.setAttribute("aria-invalid", "true");
        else field.removeAttribute("aria-invalid");
        document.getElementById(`${field.id}-error`).textContent = bad ? sentence : "";
      }
      this.root.querySelector(".calculator-result").hidden = Boolean(wrong);
      if (wrong) {
        const label = this.form.querySelector(`label[for="${this.name}-${wrong}"]`).textContent;
        this.say(`${label}: ${sentence}`);
      }
    }

    showResult({ lines, notes }) {
      const headlines = lines.filter((line) => line.headline);
      const short = (line) => line.rounded || `${line.exact} ${line.unit}`.trim();
      const said = headlines.map((line) => `${line.label}: ${short(line)}`).join("; ");
      this.say([this.unknown, `${said}.`].filter(Boolean).join(" "), Boolean(this.unknown));
      this.root.querySelector(".calculator-headlines").replaceChildren(...headlines.map((line) =>
        element("span", { class: "calculator-headline" },
          element("b", {}, short(line)), element("span", {}, line.label))));
      const groups = [...new Set(lines.map((line) => line.group))];
      this.root.querySelector(".calculator-tables").replaceChildren(...groups.map((group) =>
        this.table(group, lines.filter((line) => line.group === group))));
      this.root.querySelector(".calculator-notes").replaceChildren(
        ...notes.map((note) => element("li", {}, note)));
    }

    table(group, lines) {
      const head = ["", "Value", "Where it comes from"].map((text) =>
        element("th", { scope: "col" }, text || "Figure"));
      const rows = lines.map((line) => {
        const value = element("td", { class: "calculator-value" });
        if (line.rounded) value.append(element("b", {}, line.rounded));
        const unit = line.unit === "of all" ? "" : ` ${line.unit}`;
        value.append(element("span", { class: "calculator-exact" }, `${line.exact}${unit}`));
        if (line.share !== null) {
          const bar = element("span", { class: "calculator-bar", "aria-hidden": "true" });
          bar.style.setProperty("--share", `${100 * line.share}%`);
          value.append(bar);
        }
        const from = element("td", { class: "calculator-from" });
        const address = this.root.dataset.labPage.replace("{section}", line.section);
        const lab = `lab ${this.root.dataset.lab.slice(3)}`;
        const link = element("a", { href: address, "aria-label": `${lab} on: ${line.label}` }, lab);
        from.append(element("span", {}, line.words), " ", link);
        if (line.filled && line.filled !== line.exact) from.append(element("code", {}, line.filled));
        return element("tr", line.headline ? { class: "calculator-main" } : {},
          element("th", { scope: "row" }, line.label), value, from);
      });
      return element("table", { class: "calculator-table" },
        element("caption", {}, group || "Result"),
        element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
    }

    async share() {
      const button = this.root.querySelector(".calculator-share");
      const left = this.fields.find((one) => this.textOf(one).length > LONGEST_SHARED);
      let text = left ? "Copied, but the pasted config.json is too long for a link" : "Copied";
      try {
        await navigator.clipboard.writeText(location.href);
      } catch {
        text = "Copy the address of this page: it holds your values";
      }
      button.textContent = text;
      setTimeout(() => { button.textContent = "Copy a link to this result"; }, 4000);
    }
  }

  // --- start ------------------------------------------------------------------------------------

  async function start() {
    const roots = [...document.querySelectorAll(".calculator:not([data-started])")];
    if (!roots.length) return;
    for (const root of roots) root.dataset.started = "";
    const shared = (self.InfralensCalculators ??= { engine: null });
    const first = shared.engine === null;
    const engine = (shared.engine ??= new Engine(roots[0].dataset.files));
    const forms = roots.map((root) => new Form(root, engine));
    shared.forms = forms;
    // The form is painted before anything large is read.
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    try {
      if (first) shared.started = engine.start((text) => forms.forEach((form) => form.say(text)));
      await shared.started;
    } catch (error) {
      for (const form of forms) {
        form.say("");
        form.fail(`The calculator cannot start: ${error.message}`);
      }
      return;
    }
    for (const form of forms) form.calculate();
  }

  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
