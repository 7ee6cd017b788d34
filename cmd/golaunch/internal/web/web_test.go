package web

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
)

// limit is how long tests wait for an event that must happen.
const limit = time.Minute

// site is a server of a simulated cluster.
type site struct {
	*Server
	cluster *viewtest.Cluster
	// base is http://HOST:PORT, and links has the links that the server has given.
	base  string
	links chan string
}

// cluster returns a cluster with a number of nodes, a quarter of an hour after the first job began.
func cluster(nodes int) *viewtest.Cluster {
	return &viewtest.Cluster{Nodes: nodes, Slow: 3, Began: time.Now().Add(-15 * time.Minute), Every: time.Second}
}

// serve serves a cluster until the test ends.
func serve(t *testing.T, c *viewtest.Cluster, change func(*Options)) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{cluster: c, base: "http://" + l.Addr().String(), links: make(chan string, 100)}
	sources := map[string]view.Source{"10.0.0.1:29400": c}
	o := Options{
		Model: view.New(sources, view.Options{}), Sources: func() map[string]view.Source { return sources }, Version: "v0.9.0", Host: "127.0.0.1",
		Links: func(path string) { s.links <- s.base + path },
	}
	if change != nil {
		change(&o)
	}
	s.Server = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}
