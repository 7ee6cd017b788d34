package trainjob

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// controller starts a server that stands for Kubeflow's controller. It refuses requests without the
// token.
func controller(t *testing.T, token *string) (env map[string]string, heard func() []map[string]any) {
	t.Helper()
	var all []map[string]any
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+*token {
			http.Error(w, `{"kind":"Status","reason":"Unauthorized"}`, http.StatusUnauthorized)
			return
		}
		body, _ := io.ReadAll(r.Body)
		var status map[string]map[string]any
		if err := json.Unmarshal(body, &status); err != nil || r.Method != http.MethodPost || r.URL.Path != "/status" {
			t.Errorf("%s %s %s: %v", r.Method, r.URL, body, err)
		}
		all = append(all, status["trainerStatus"])
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"KUBEFLOW_TRAINER_SERVER_URL": s.URL + "/status", "KUBEFLOW_TRAINER_SERVER_CA_CERT": filepath.Join(dir, "ca.crt"),
		"KUBEFLOW_TRAINER_SERVER_TOKEN": filepath.Join(dir, "token"),
	}, func() []map[string]any { return all }
}

func TestPush(t *testing.T) {
	token := "first"
	env, heard := controller(t, &token)
	status, err := Here(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(env["KUBEFLOW_TRAINER_SERVER_TOKEN"], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	write("first\n")
	if err := status.Push(t.Context(), Progress{Percent: 45, Remaining: 2 * time.Minute, At: at}); err != nil {
		t.Error(err)
	}
	token = "second"
	if err := status.Push(t.Context(), Progress{Percent: 46, At: at}); err == nil || !strings.Contains(err.Error(), "401 Unauthorized") {
		t.Errorf("with an old token: %v", err)
	}
	write("second")
	if err := status.Push(t.Context(), Progress{Percent: 146, Remaining: -1, At: at}); err != nil {
		t.Error(err)
	}
	want := []map[string]any{
		{"progressPercentage": 45.0, "estimatedRemainingSeconds": 120.0, "lastUpdatedTime": "2026-01-02T03:04:05Z"},
		{"progressPercentage": 100.0, "lastUpdatedTime": "2026-01-02T03:04:05Z"},
	}
	if got := heard(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestHere(t *testing.T) {
	if s, err := Here(func(string) string { return "" }); s != nil || err != nil {
		t.Errorf("outside of Kubeflow: %v, %v", s, err)
	}
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for ca, want := range map[string]string{empty: "has no certificate", filepath.Join(dir, "none"): "no such file"} {
		env := map[string]string{"KUBEFLOW_TRAINER_SERVER_URL": "https://x", "KUBEFLOW_TRAINER_SERVER_CA_CERT": ca}
		if _, err := Here(func(name string) string { return env[name] }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ca, err)
		}
	}
}
