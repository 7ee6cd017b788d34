package web

import (
	"embed"
	"net/http"
	"path"
)

//go:embed assets
var assets embed.FS

// kinds are the content types of the files that browsers may request.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// modules are the scripts of the page, each after the scripts that it uses. They are served as one
// file, without imports and exports.
var modules = []string{"dom.js", "format.js", "table.js", "chart.js", "stream.js", "log.js", "ranks.js", "cluster.js", "job.js", "node.js", "app.js"}

func file(name string) []byte {
	body, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // the file is embedded in this program
	}
	return body
}

// asset serves a file that is not secret.
func asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	kind, known := kinds[path.Ext(name)]
	body, err := assets.ReadFile("assets/" + name)
	if !known || err != nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("there is no such page; the dashboard is at /\n"))
		return
	}
	write(w, kind, body)
}
