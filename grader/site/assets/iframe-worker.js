// A page opened as a file may start no Worker. This one runs the search in a hidden frame instead,
// which is made at the first question, so that a page loads without it.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
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
