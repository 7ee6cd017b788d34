package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Meter reads the use of GPUs repeatedly through one child process that keeps the driver open, so a
// reading starts no process. A driver that hangs or crashes takes down only that child, which ends
// with this process in any case. GPUs cannot be reset while the child runs; [Meter.Close] ends the
// child. A Meter may be used by several goroutines.
type Meter struct {
	// turn is held by the goroutine that uses the fields after it.
	turn  chan struct{}
	child *meterChild
	rest  rest
	// now is the clock for the pauses.
	now func() time.Time
	// life is a context that ends with Close.
	life context.Context
	stop context.CancelFunc
}

// NewMeter starts nothing.
func NewMeter() *Meter {
	life, stop := context.WithCancel(context.Background())
	return &Meter{turn: make(chan struct{}, 1), now: time.Now, life: life, stop: stop}
}

var errClosed = errors.New("the GPU meter is closed")

// Read reads all GPUs in the driver's order, except GPUs of other jobs and lost GPUs. It ends with
// ctx, and within 10 s.
//
// The first Read starts the child, and so does a Read after the child died or did not answer. A
// driver that opens more slowly than ctx allows still gets 10 s; a later Read then uses the driver.
// After 5 failures in a row Read returns the last error at once and tries again only once a minute.
// Without a driver or a GPU it returns no readings and no error for a minute.
func (m *Meter) Read(ctx context.Context) ([]Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(m.life, cancel)()
	if err := m.take(ctx); err != nil {
		return nil, err
	}
	defer func() { <-m.turn }()
	if resting, err := m.rest.at(m.now()); resting {
		return nil, err
	}
	if m.child == nil && !present(os.Getenv("LD_LIBRARY_PATH")) {
		m.rest = absent(m.now())
		return nil, nil
	}
	begin := time.Now()
	a, err := m.ask(ctx)
	switch {
	case err != nil:
		return nil, m.failed(ctx, err, time.Since(begin))
	case a.Why != "":
		m.child.kill()
		m.rest = absent(m.now())
		return nil, nil
	}
	m.rest = rest{}
	return a.readings(), nil
}

// take waits for the turn, which the caller must give back.
func (m *Meter) take(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return m.givenUp(ctx)
	}
	if ctx.Err() != nil {
		<-m.turn
		return m.givenUp(ctx)
	}
	return nil
}

// ask asks the child. If a child that has answered before was killed since, it asks a new child.
func (m *Meter) ask(ctx context.Context) (a answer, err error) {
	veteran := m.child != nil && m.child.opened
	for {
		if err := m.ready(ctx); err != nil {
			return answer{}, err
		}
		if a, err = m.child.ask(ctx); !veteran || !errors.Is(err, errDied) {
			return a, err
		}
		veteran = false
	}
}

// ready ensures that there is a child to ask. There is never more than one child: where a child
// cannot be killed, another child would hang too.
func (m *Meter) ready(ctx context.Context) (err error) {
	if m.child != nil && m.child.able() {
		return nil
	}
	if m.child != nil {
		if err := m.child.end(ctx); err != nil {
			return err
		}
	}
	m.child, err = newMeterChild()
	return err
}

// failed handles and describes an error of ask; ask lasted for took.
func (m *Meter) failed(ctx context.Context, err error, took time.Duration) error {
	late := errors.Is(err, ctx.Err())
	if late && m.life.Err() == nil && m.child.opening() {
		return fmt.Errorf("the NVIDIA driver is still being opened: %w; hint: set persistence mode (nvidia-smi -pm 1)", err)
	}
	if m.child != nil {
		m.child.kill()
	}
	if late && errors.Is(err, context.Canceled) {
		return m.givenUp(ctx)
	}
	if late {
		err = fmt.Errorf("the NVIDIA driver did not answer within %v: %w; hint: run nvidia-smi, and look for Xid in dmesg",
			took.Round(time.Millisecond), err)
	}
	m.rest = m.rest.failed(m.now(), err)
	return err
}

// If a Read ended through no fault of the driver, givenUp returns why.
func (m *Meter) givenUp(ctx context.Context) error {
	if m.life.Err() != nil {
		return errClosed
	}
	return fmt.Errorf("reading GPUs given up: %w", ctx.Err())
}

// Close ends the child and any Read that waits for it. It fails if the child is not gone within a
// second. A Read after Close fails.
func (m *Meter) Close() error {
	m.stop()
	m.turn <- struct{}{} // no Read keeps it for long now
	defer func() { <-m.turn }()
	if m.child == nil {
		return nil
	}
	return m.child.end(context.Background())
}
