package launcher_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher"
)

// controller starts a server that stands for Kubeflow's controller, and passes on its requests. It
// sets the variables by which this process finds the server.
func controller(t *testing.T) <-chan map[string]any {
	t.Helper()
	heard := make(chan map[string]any, 16)
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var status map[string]map[string]any
		if err := json.NewDecoder(r.Body).Decode(&status); err != nil || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%v, %q", err, r.Header.Get("Authorization"))
		}
		select {
		case heard <- status["trainerStatus"]:
		default:
		}
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("KUBEFLOW_TRAINER_SERVER_URL", s.URL)
	t.Setenv("KUBEFLOW_TRAINER_SERVER_CA_CERT", file("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	t.Setenv("KUBEFLOW_TRAINER_SERVER_TOKEN", file("token", []byte("secret\n")))
	return heard
}

// TestTrainJob reports a job's progress to a controller like Kubeflow's.
func TestTrainJob(t *testing.T) {
	heard := controller(t)
	job, _, words := marked(t, 2, `echo "5 20" >$GOLAUNCH_HEARTBEAT_FILE; exec sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		select {
		case status := <-heard:
			if status["progressPercentage"] != 25.0 || status["lastUpdatedTime"] == "" || status["estimatedRemainingSeconds"] != nil {
				t.Errorf("got %v", status)
			}
		case <-ctx.Done():
		}
	}()
	if _, err := launcher.Run(ctx, job); err != nil {
		t.Error(err)
	}
	if strings.Contains(words.String(), "Kubeflow") {
		t.Errorf("it says %s", words)
	}
}

// TestTrainJobEnds: a successful job is reported as complete, even if it was short. Any other job
// is reported with its last known progress.
func TestTrainJobEnds(t *testing.T) {
	heard := controller(t)
	job, _, _ := marked(t, 2, `echo "5 20" >$GOLAUNCH_HEARTBEAT_FILE`)
	if _, err := launcher.Run(t.Context(), job); err != nil {
		t.Error(err)
	}
	if status := <-heard; status["progressPercentage"] != 100.0 || status["estimatedRemainingSeconds"] != 0.0 {
		t.Errorf("got %v", status)
	}
	job, _, _ = marked(t, 2, `exit 3`)
	if r, err := launcher.Run(t.Context(), job); err != nil || r.Code != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	select {
	case status := <-heard:
		t.Errorf("for a failed job, got %v", status)
	default:
	}
}
