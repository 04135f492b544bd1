// A page opened as a file may start no Worker of another file. This one runs the search in a hidden
// frame instead, which is made at the first question, so that a page loads without it. What a page
// has made itself, a blob, may be a Worker's.
if (location.protocol === "file:") {
  const Own = window.Worker;
  window.Worker = class extends EventTarget {
    constructor(url) {
      if (String(url).startsWith("blob:")) return new Own(url);
      super();
      this.url = url;
    }
    start() {
      var frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.appendChild(frame);
      var inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = () => {};
      this.ready = new Promise((done, failed) => {
        var script = frame.contentDocument.createElement("script");
        script.src = this.url;
        script.onload = () => done(inside);
        script.onerror = failed;
        frame.contentDocument.body.appendChild(script);
      });
    }
    postMessage(data) {
      if (!this.ready) this.start();
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
