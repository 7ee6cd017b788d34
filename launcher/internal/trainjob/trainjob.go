// Package trainjob reports the progress of a TrainJob to Kubeflow's Trainer, so that kubectl shows
// it.
//
// If the controller's feature TrainJobStatus is on, the controller gives each container an address,
// a certificate and a token (KEP-2779 of kubeflow/trainer). The address names the job.
package trainjob

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// Every is the shortest time between two pushes that the controller's documentation allows.
const Every = 5 * time.Second

// pushLimit bounds the time of a push, and maxWords the size of the answer, in bytes.
const (
	pushLimit = 5 * time.Second
	maxWords  = 4 << 10
)

// Status is the place to which golaunch pushes the status of this process's TrainJob.
type Status struct {
	url, token string
	client     *http.Client
}

// Here finds this process's Status in its environment; nil if there is none. An error says what is
// wrong with the environment.
func Here(getenv func(string) string) (*Status, error) {
	url, ca, token := getenv("KUBEFLOW_TRAINER_SERVER_URL"), getenv("KUBEFLOW_TRAINER_SERVER_CA_CERT"), getenv("KUBEFLOW_TRAINER_SERVER_TOKEN")
	if url == "" {
		return nil, nil
	}
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("cannot report progress to Kubeflow's Trainer: KUBEFLOW_TRAINER_SERVER_CA_CERT: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("cannot report progress to Kubeflow's Trainer: %s has no certificate", ca)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	return &Status{url, token, &http.Client{Transport: transport, Timeout: pushLimit}}, nil
}

// Progress is the progress of a TrainJob, as the Trainer gets it. Negative values are unknown.
type Progress struct {
	// Percent is how much of the job is done, 0 to 100.
	Percent   int
	Remaining time.Duration
	At        time.Time
}

// Push reports progress to the Trainer. It reads the token's file each time, since the token
// changes.
func (s *Status) Push(ctx context.Context, p Progress) error {
	if err := s.push(ctx, p); err != nil {
		return fmt.Errorf("cannot report progress to Kubeflow's Trainer: %w", err)
	}
	return nil
}

func (s *Status) push(ctx context.Context, p Progress) error {
	token, err := os.ReadFile(s.token)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"trainerStatus": fields(p)})
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := s.client.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	words, err := io.ReadAll(io.LimitReader(answer.Body, maxWords))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %.200q", answer.Status, words)
	}
	return err
}

// fields returns the progress under the controller's names.
func fields(p Progress) map[string]any {
	f := map[string]any{"lastUpdatedTime": p.At.UTC().Format(time.RFC3339)}
	if p.Percent >= 0 {
		f["progressPercentage"] = min(p.Percent, 100)
	}
	if p.Remaining >= 0 {
		f["estimatedRemainingSeconds"] = int(p.Remaining.Seconds())
	}
	return f
}
