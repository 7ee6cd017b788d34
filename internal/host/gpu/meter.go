package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Meter reads what GPUs do now, again and again, through one process of its own that has the driver open: a reading costs no start of a
// process, and a driver that hangs or crashes takes nobody with it but that process, which ends with this one however that ends. While it
// lives the GPUs cannot be reset, for which [Meter.Close] is. A Meter may be used by several goroutines.
type Meter struct {
	// turn is held by who owns what follows.
	turn  chan struct{}
	child *teller
	rest  rest
	// now is the time, of which only the pauses depend.
	now func() time.Time
	// life ends with Close.
	life context.Context
	stop context.CancelFunc
}

// NewMeter starts nothing.
func NewMeter() *Meter {
	life, stop := context.WithCancel(context.Background())
	return &Meter{turn: make(chan struct{}, 1), now: time.Now, life: life, stop: stop}
}

var errClosed = errors.New("the GPU meter is closed")

// Read asks what all GPUs do, in the driver's order; a GPU of another job and one that is lost are left out. It is over with ctx, and
// within 10 s.
//
// Its process is started at the first Read, and anew by one after it died or did not answer. A driver that takes longer to open than ctx
// lets it is opened all the same, for 10 s, and a later Read has it. After 5 failures in a row Read returns the last one at once, and
// asks only once a minute. Where there is no driver or no GPU the readings are empty, without an error and for a minute.
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

// take waits for the turn, which the caller then has to give back.
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

// ask asks the child. One that has answered before may have been killed since by anybody, and a new one is asked then.
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

// ready sees to a child that can be asked. There is never more than one: another would hang where one cannot be killed.
func (m *Meter) ready(ctx context.Context) (err error) {
	if m.child != nil && m.child.able() {
		return nil
	}
	if m.child != nil {
		if err := m.child.end(ctx); err != nil {
			return err
		}
	}
	m.child, err = newTeller()
	return err
}

// failed draws the consequences of an error of ask, which took that long, and puts it into words.
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

// givenUp is why a Read ended through no fault of the driver.
func (m *Meter) givenUp(ctx context.Context) error {
	if m.life.Err() != nil {
		return errClosed
	}
	return fmt.Errorf("reading GPUs given up: %w", ctx.Err())
}

// Close ends the process, and a Read that waits for it. It is an error when the process is not gone within a second. A Read
// after Close is an error.
func (m *Meter) Close() error {
	m.stop()
	m.turn <- struct{}{} // a Read does not keep it for long now
	defer func() { <-m.turn }()
	if m.child == nil {
		return nil
	}
	return m.child.end(context.Background())
}
