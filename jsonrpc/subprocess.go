package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Defaults and limits of a Subprocess.
const (
	defaultStderrTail = 64 << 10 // bytes
	defaultStderrLine = 8 << 10  // bytes
	defaultStopWait   = 5 * time.Second
	// lingerWait is what processes that the child left behind get to close its
	// output, once it has exited.
	lingerWait = time.Second
	// exitWait is how long the end of the output waits for the exit status,
	// which comes at the same moment as a rule, and later on a busy machine.
	exitWait = time.Second
)

// A SubprocessConfig says how Start treats a child process. The zero value is
// ready.
type SubprocessConfig struct {
	// Framing makes the Stream; nil: NewLineStream.
	Framing Framing

	// StderrLine gets each line that the child writes to its stderr, without
	// the line's end, as soon as it is there. The bytes are borrowed. It is
	// called from one goroutine; as long as it does not return, the child may
	// have to wait. It must not call Close.
	StderrLine func(line []byte)
	// StderrLineLimit is the length of a line in bytes beyond which it comes in
	// pieces; 0: 8 KiB.
	StderrLineLimit int
	// StderrTail is how many of the last bytes of stderr are kept; 0: 64 KiB.
	StderrTail int

	// CloseWait is what the child gets to exit after its stdin was closed,
	// TermWait after it got SIGTERM as well, KillWait after SIGKILL, which only
	// a process stuck in the kernel outlives. 0: 5 s each; negative: no time.
	// Systems without signals go from the first to the last.
	CloseWait, TermWait, KillWait time.Duration
}

// A Subprocess is a child process and the Stream over its stdin and stdout
// (RPC-12). Read returns an *ExitError, which matches io.EOF, instead of a bare
// io.EOF when the child exited with anything but status 0.
type Subprocess struct {
	stream Stream
	conn   *childConn
	cmd    *exec.Cmd
	cfg    SubprocessConfig
	stderr *stderrReader

	exited  chan struct{} // closed when cmd.Wait returned
	exitErr error         // what it returned; readable when exited is closed
	reaped  chan struct{} // closed when what the child left behind is gone

	stopOnce sync.Once
	stopping chan struct{} // closed when stop begins
	stopErr  error         // readable after stopOnce
	tasks    sync.WaitGroup
}

// Start starts cmd, whose Stdin and Stdout must not be set, and returns the
// Stream over them. A cmd.Stderr that is set gets a copy of what comes there.
//
// The child is made the leader of a process group on Unix systems, so that the
// signals of Close reach its descendants, and Ctrl-C on a terminal reaches this
// process alone. Descendants that keep stdout or stderr open when the child has
// exited are killed after a second.
//
// When ctx ends the child is stopped as by Close. The caller calls Close in
// any case, or leaves it to the Conn over the Subprocess.
func Start(ctx context.Context, cmd *exec.Cmd, cfg SubprocessConfig) (*Subprocess, error) {
	if cmd.Stdin != nil || cmd.Stdout != nil {
		return nil, errors.New("jsonrpc: start subprocess: Stdin and Stdout of the command are for the Stream; leave them unset")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("jsonrpc: start subprocess: %w", err)
	}
	s := &Subprocess{
		cmd:      cmd,
		cfg:      cfg.withDefaults(),
		exited:   make(chan struct{}),
		reaped:   make(chan struct{}),
		stopping: make(chan struct{}),
	}
	if err := s.launch(); err != nil {
		return nil, fmt.Errorf("jsonrpc: start subprocess: %w", err)
	}
	s.stream = s.cfg.Framing(s.conn)
	s.tasks.Go(s.stderr.run)
	go s.wait() // until reaped is closed; Close waits for it as long as it may
	s.tasks.Go(func() {
		select {
		case <-ctx.Done():
			s.stop()
		case <-s.stopping:
		}
	})
	return s, nil
}

func (cfg SubprocessConfig) withDefaults() SubprocessConfig {
	if cfg.Framing == nil {
		cfg.Framing = NewLineStream
	}
	if cfg.StderrLineLimit <= 0 {
		cfg.StderrLineLimit = defaultStderrLine
	}
	if cfg.StderrTail <= 0 {
		cfg.StderrTail = defaultStderrTail
	}
	for _, d := range []*time.Duration{&cfg.CloseWait, &cfg.TermWait, &cfg.KillWait} {
		if *d == 0 {
			*d = defaultStopWait
		}
	}
	return cfg
}

// launch makes the pipes and starts the process. The pipes are made here and
// not by cmd, whose Wait would close them before everything is read.
func (s *Subprocess) launch() error {
	var ends []*os.File
	pipe := func() (r, w *os.File, err error) {
		r, w, err = os.Pipe()
		if err == nil {
			ends = append(ends, r, w)
		}
		return r, w, err
	}
	abort := func(err error) error {
		for _, f := range ends {
			f.Close()
		}
		return err
	}
	inR, inW, err := pipe()
	if err != nil {
		return abort(err)
	}
	outR, outW, err := pipe()
	if err != nil {
		return abort(err)
	}
	errR, errW, err := pipe()
	if err != nil {
		return abort(err)
	}
	s.conn = &childConn{in: inW, out: outR, eof: make(chan struct{})}
	s.stderr = newStderrReader(errR, s.cmd.Stderr, s.cfg)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = inR, outW, errW
	ownGroup(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return abort(err)
	}
	for _, childEnd := range []*os.File{inR, outW, errW} {
		childEnd.Close()
	}
	return nil
}

// Read reads from the child's stdout; see Stream.
func (s *Subprocess) Read() (Part, error) {
	part, err := s.stream.Read()
	if err != nil {
		err = s.explain(err)
	}
	return part, err
}

// Write writes to the child's stdin; see Stream.
func (s *Subprocess) Write(p []byte) (int, error) {
	n, err := s.stream.Write(p)
	if err != nil {
		err = s.explain(err)
	}
	return n, err
}

// WriteWatched is Write for a peer that may be slow; see Stream.
func (s *Subprocess) WriteWatched(p []byte, watch func(on bool)) (int, error) {
	w, ok := s.stream.(watchedWriter)
	if !ok {
		return s.Write(p)
	}
	n, err := w.WriteWatched(p, watch)
	if err != nil {
		err = s.explain(err)
	}
	return n, err
}

// explain adds the exit status to an error of a pipe that the child's exit is
// the reason of.
func (s *Subprocess) explain(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		return err
	}
	select {
	case <-s.exited:
	case <-s.stopping:
		return err
	case <-time.After(exitWait):
		select {
		case <-s.exited: // this process was late, too
		default:
			return err // closed its output and goes on
		}
	}
	// Its last words come through a pipe of their own, which somebody that it
	// left behind may keep open.
	select {
	case <-s.stderr.eof:
	case <-s.stopping:
	case <-time.After(lingerWait):
	}
	if exit := s.exitError(err); exit != nil {
		return exit
	}
	return err
}

// PID returns the process id of the child.
func (s *Subprocess) PID() int { return s.cmd.Process.Pid }

// Exited returns a channel that is closed when the child has exited.
func (s *Subprocess) Exited() <-chan struct{} { return s.exited }

// Err returns an *ExitError when the child has exited with anything but status
// 0, and nil otherwise.
func (s *Subprocess) Err() error {
	select {
	case <-s.exited:
		if exit := s.exitError(nil); exit != nil {
			return exit
		}
	default:
	}
	return nil
}

// Stderr returns a copy of the last bytes that the child wrote to its stderr.
func (s *Subprocess) Stderr() []byte { return s.stderr.tail() }

// exitError returns nil for a child that exited with status 0.
func (s *Subprocess) exitError(stream error) *ExitError {
	if s.exitErr == nil {
		return nil
	}
	return &ExitError{Command: filepath.Base(s.cmd.Path), Err: s.exitErr, Stderr: s.Stderr(), stream: stream}
}

// wait reaps the child, and sees to it that nobody keeps its output open.
func (s *Subprocess) wait() {
	defer close(s.reaped)
	s.exitErr = s.cmd.Wait()
	close(s.exited)
	linger := time.NewTimer(lingerWait)
	defer linger.Stop()
	for _, end := range []<-chan struct{}{s.stderr.eof, s.conn.eof} {
		select {
		case <-end:
		case <-linger.C:
			// The number of the group cannot have been given to another one
			// as long as a process of it is there, and one of those most
			// likely is what keeps the pipe open.
			killGroup(s.cmd)
			return
		}
	}
}

// Close stops the child: it closes stdin and drops what still comes from
// stdout, waits, sends SIGTERM, waits, sends SIGKILL and waits, each only if
// the child still runs, for the times of SubprocessConfig. Afterwards all is
// released. It returns an *ExitError if the child did not exit with status 0;
// calls after the first one wait for it and return the same.
func (s *Subprocess) Close() error {
	s.stop()
	s.tasks.Wait()
	return s.stopErr
}

func (s *Subprocess) stop() {
	s.stopOnce.Do(func() {
		close(s.stopping)
		s.stream.Close() //nolint:errcheck // a stdin that cannot be closed is closed below by the child's end
		s.tasks.Go(s.conn.drain)
		if !s.awaitExit(s.cfg.CloseWait) && (!terminateGroup(s.cmd) || !s.awaitExit(s.cfg.TermWait)) {
			killGroup(s.cmd)
			s.awaitExit(s.cfg.KillWait)
		}
		select {
		case <-s.exited:
			<-s.reaped // takes a second at most
			if exit := s.exitError(nil); exit != nil {
				s.stopErr = exit
			}
		default:
			s.stopErr = &ExitError{Command: filepath.Base(s.cmd.Path), Err: errStillRuns, Stderr: s.Stderr()}
		}
		// Ends drain and the reader of stderr, if a process that left the
		// group still holds the other ends.
		s.conn.out.Close()
		s.stderr.src.Close()
	})
}

func (s *Subprocess) awaitExit(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.exited:
		return true
	case <-timer.C:
		return false
	}
}

var errStillRuns = errors.New("still runs after SIGKILL")

// An ExitError says how a Subprocess ended.
type ExitError struct {
	// Command is the last element of the program's path. Arguments are left
	// out, since they may hold secrets.
	Command string
	// Err is an *exec.ExitError with the status or the signal, as a rule.
	Err error
	// Stderr is the last that the child wrote to its stderr, as much as
	// SubprocessConfig.StderrTail.
	Stderr []byte

	stream error // what Read or Write met
}

// Error tells the status and the last 512 bytes of stderr.
func (e *ExitError) Error() string {
	text := fmt.Sprintf("jsonrpc: subprocess %s: %v", e.Command, e.Err)
	if last := e.Stderr[max(0, len(e.Stderr)-512):]; !allBlank(last) {
		text += fmt.Sprintf(", stderr ends with %q", last)
	}
	return text
}

// Unwrap returns Err and what Read or Write met, such as io.EOF.
func (e *ExitError) Unwrap() []error {
	if e.stream == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.stream}
}

// A childConn is the connection over a child's stdin and stdout.
type childConn struct {
	in      *os.File
	out     *os.File
	eof     chan struct{} // closed when out has ended
	eofOnce sync.Once

	reading sync.Mutex // held by who reads from out

	mu      sync.Mutex
	closing bool // guarded by mu
}

func (c *childConn) Write(p []byte) (int, error) { return c.in.Write(p) }

func (c *childConn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.closed() {
		return 0, os.ErrClosed
	}
	n, err := c.out.Read(p)
	switch {
	case err == nil:
	case c.closed():
		err = os.ErrClosed
	case errors.Is(err, io.EOF):
		c.ended()
	}
	return n, err
}

func (c *childConn) ended() { c.eofOnce.Do(func() { close(c.eof) }) }

func (c *childConn) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// SetReadDeadline does nothing any more when Close has interrupted Read.
func (c *childConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return os.ErrClosed
	}
	return c.out.SetReadDeadline(t)
}

// Close closes the child's stdin and ends Read. stdout stays open for drain.
func (c *childConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil
	}
	c.closing = true
	if c.out.SetReadDeadline(time.Unix(1, 0)) != nil {
		c.out.Close() // cannot be interrupted otherwise; there is nothing to drain then
	}
	return c.in.Close()
}

// drain reads stdout to its end, so that a child that has something left to say
// before it exits can say it.
func (c *childConn) drain() {
	c.reading.Lock()
	defer c.reading.Unlock()
	defer c.ended()
	if c.out.SetReadDeadline(time.Time{}) == nil {
		io.Copy(io.Discard, c.out) //nolint:errcheck // ends by stop closing it
	}
}
