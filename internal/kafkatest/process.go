package kafkatest

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// watchdogScript reads what runs and what has ended. When its input ends, with
// the process that writes it, it kills what still runs and removes the folder.
const watchdogScript = `
pids=
while read -r word pid; do
	rest=
	for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done
	pids=$rest
	[ "$word" = run ] && pids="$pids $pid"
done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
n=0
until rm -rf -- "$1" 2>/dev/null || [ $n -ge 50 ]; do n=$((n+1)); sleep 0.1; done
`

// family starts processes that end with this one for certain, also when this
// one is killed: on Linux the kernel kills them with the thread that started
// them, and everywhere a watchdog does, which then removes their folder.
type family struct {
	start    chan func()
	finished chan struct{}

	mu       sync.Mutex // protects what is written to the watchdog
	watchdog *exec.Cmd
	tell     io.WriteCloser
}

// newFamily starts the watchdog over dir.
func newFamily(dir string) (*family, error) {
	f := &family{start: make(chan func()), finished: make(chan struct{})}
	f.watchdog = exec.Command("/bin/sh", "-c", watchdogScript, "watchdog", dir)
	f.watchdog.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	tell, err := f.watchdog.StdinPipe()
	if err != nil {
		return nil, err
	}
	f.tell = tell
	if err := f.watchdog.Start(); err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	go f.starter()
	return f, nil
}

// starter starts the processes from one thread, which lives as long as the
// family: the kernel's promise goes with the thread.
func (f *family) starter() {
	defer close(f.finished)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for do := range f.start {
		do()
	}
}

// process is one child; exited is closed after its end.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// run starts cmd.
func (f *family) run(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = attributes()
	p := &process{cmd: cmd, exited: make(chan struct{})}
	began := make(chan error)
	f.start <- func() { began <- cmd.Start() }
	if err := <-began; err != nil {
		return nil, err
	}
	f.say("run", cmd.Process.Pid)
	go func() {
		defer close(p.exited)
		_ = cmd.Wait()
		f.say("end", cmd.Process.Pid)
	}()
	return p, nil
}

func (f *family) say(word string, pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = fmt.Fprintf(f.tell, "%s %d\n", word, pid)
}

// close returns when the watchdog has removed the folder. No process may run.
func (f *family) close() {
	close(f.start)
	<-f.finished
	_ = f.tell.Close()
	_ = f.watchdog.Wait()
}
