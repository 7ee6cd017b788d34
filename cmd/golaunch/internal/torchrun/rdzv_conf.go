package torchrun

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// How long torchrun waits for nodes by default: static's timeout of
// torch/distributed/launcher/api.py, and c10d's join timeout of
// elastic/rendezvous/dynamic_rendezvous.py.
const (
	staticTimeout = 900 * time.Second
	joinTimeout   = 600 * time.Second
)

// torchrun's c10d counts a node as lost after keepAliveTries intervals of silence
// (elastic/rendezvous/dynamic_rendezvous.py).
const (
	keepAliveSeconds = 5
	keepAliveTries   = 3
)

// conf applies --rdzv-conf, whose times are in seconds.
func (x *translation) conf() error {
	if x.max > 1 {
		if x.o.Job.Resources.PlacementTimeout = joinTimeout; x.backend == "static" {
			x.o.Job.Resources.PlacementTimeout = staticTimeout
		}
	}
	interval, tries := keepAliveSeconds, keepAliveTries
	lastCall := -1
	wait := 0
	numbers := map[string]*int{
		"join_timeout": &wait, "last_call_timeout": &lastCall, "keep_alive_interval": &interval, "keep_alive_max_attempt": &tries,
	}
	if x.backend == "static" {
		numbers["timeout"] = &wait // c10d has no such key
	}
	for pair := range strings.FieldsFuncSeq(unquoted(x.rdzvConf), func(r rune) bool { return r == ',' }) {
		key, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		switch to := numbers[key]; {
		case to != nil:
			var err error
			if *to, err = strconv.Atoi(value); err != nil || *to < 0 || *to == 0 && to != &lastCall {
				return fmt.Errorf("--rdzv-conf %s=%q: a whole number above 0", key, value)
			}
		case key == "store_type" && value != "tcp":
			return fmt.Errorf("--rdzv-conf store_type=%s: golaunch's coordinator meets the nodes, by tcp", value)
		case key != "store_type" && key != "rank": // rank repeats --node-rank
			x.warn("--rdzv-conf %s has no effect", key)
		}
	}
	switch {
	case lastCall > 0:
		x.o.Job.Resources.LastCall = time.Duration(lastCall) * time.Second
	case lastCall == 0:
		x.o.Job.Resources.LastCall = -1
	}
	if wait > 0 {
		if err := x.set("placement-timeout", seconds(wait)); err != nil {
			return err
		}
	}
	if interval == keepAliveSeconds && tries == keepAliveTries {
		return nil
	}
	return x.set("lease", seconds(interval*tries))
}

// unquoted removes the quotes that a shell has left, as in --rdzv-conf="'timeout=5'".
func unquoted(text string) string {
	if n := len(text); n >= 2 && text[0] == text[n-1] && (text[0] == '\'' || text[0] == '"') {
		return text[1 : n-1]
	}
	return text
}

func seconds(n int) string { return strconv.Itoa(n) + "s" }

// stop sets the time that ranks may take to end.
func (x *translation) stop() error {
	n := x.shutdown
	if !x.given.Changed("shutdown-timeout") {
		text, ok := os.LookupEnv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
		if !ok {
			return nil
		}
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=%q: a whole number of seconds", text)
		}
	}
	if n < 0 {
		return fmt.Errorf("--shutdown-timeout %d: at least 0", n)
	}
	return x.set("grace", seconds(n))
}
