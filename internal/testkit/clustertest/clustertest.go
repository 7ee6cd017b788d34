// Package clustertest runs a cluster in a test's own process.
package clustertest

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/golaunch/golaunch/launcher"
)

// Token is the secret of each cluster. TokenFile is the file of the token.
const Token = "0123456789abcdef0123456789abcdef"

// Cluster says where a coordinator is.
type Cluster struct{ Coordinator, TokenFile string }

// Found, instead of a number of declared GPUs, makes an agent find its GPUs.
const Found = -1

// Start runs a coordinator and an agent for each number of GPUs, named n0, n1, ..., until the
// test's end.
func Start(t testing.TB, gpus ...int) Cluster {
	t.Helper()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(Token), 0o600); err != nil {
		t.Fatal(err)
	}
	// The agents end first, so that they leave in order.
	head, stopHead := context.WithCancel(context.Background())
	nodes, stopNodes := context.WithCancel(context.Background())
	var heads, agents sync.WaitGroup
	t.Cleanup(func() {
		stopNodes()
		agents.Wait()
		stopHead()
		heads.Wait()
	})
	at, joined, failed := make(chan netip.AddrPort, 1), make(chan struct{}, len(gpus)), make(chan error, 1+len(gpus))
	heads.Go(func() {
		err := launcher.Coordinator{
			Listen: "127.0.0.1:0", Store: filepath.Join(dir, "store"), TokenFile: token, Ready: func(a netip.AddrPort) { at <- a },
		}.Serve(head)
		if err != nil {
			failed <- err
			t.Error(err)
		}
	})
	coordinator := await(t, at, failed).String()
	for i, n := range gpus {
		declared := &n
		if n == Found {
			declared = nil
		}
		in := sync.OnceFunc(func() { joined <- struct{}{} })
		a := launcher.Agent{
			Coordinator: coordinator, TokenFile: token, AllowRunAsRoot: true, GPUs: declared, Name: "n" + strconv.Itoa(i),
			Address: "127.0.0." + strconv.Itoa(i+1), LogDir: filepath.Join(dir, "logs"), Say: func(string) { in() },
		}
		agents.Go(func() {
			if _, err := a.Serve(nodes); nodes.Err() == nil {
				failed <- err
				t.Error(err)
			}
		})
	}
	for range gpus {
		await(t, joined, failed)
	}
	return Cluster{coordinator, token}
}

func await[T any](t testing.TB, came <-chan T, failed <-chan error) T {
	t.Helper()
	select {
	case what := <-came:
		return what
	case err := <-failed:
		t.Fatal(err)
		panic("not reached")
	}
}

// Connect returns a client, which ends with the test.
func (c Cluster) Connect(t testing.TB) *launcher.Client {
	t.Helper()
	client, err := launcher.Connect(t.Context(), c.Coordinator, c.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}
