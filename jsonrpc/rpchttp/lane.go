package rpchttp

import (
	"slices"
	"sync"
)

// A lane is a queue with workers of its own, so that what a call waits for is
// not stuck behind calls. The lanes are those of calls, notifications and
// answers to the server's calls.
type lane struct {
	maxBytes, maxJobs, maxWorkers int

	mu      sync.Mutex
	more    sync.Cond // there are jobs, or the lane is closed
	jobs    []*job    // waiting for a worker
	bytes   int       // of jobs
	active  int       // jobs that wait or are worked on
	workers int
	closed  bool
}

const (
	callLane = iota
	notificationLane
	answerLane
)

// laneOf returns the lane of messages of a kind.
func (s *Stream) laneOf(kind messageKind) *lane {
	switch kind {
	case isAnswer:
		return &s.lanes[answerLane]
	case isNotification:
		if s.cfg.MaxInFlight > 1 { // else order counts
			return &s.lanes[notificationLane]
		}
	case isCall:
	}
	return &s.lanes[callLane]
}

func (l *lane) open(cfg *ClientConfig) {
	l.maxBytes, l.maxJobs, l.maxWorkers = cfg.MaxQueue, maxQueued, cfg.MaxInFlight
	l.more.L = &l.mu
}

// hasRoom says that one more job may wait.
func (l *lane) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hasRoomLocked()
}

func (l *lane) hasRoomLocked() bool { return l.bytes < l.maxBytes && len(l.jobs) < l.maxJobs }

// push queues j. False: a new worker is to begin with it, since all are busy and there
// may be more.
func (l *lane) push(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active++
	if l.active > l.workers && l.workers < l.maxWorkers {
		l.workers++
		return false
	}
	l.jobs = append(l.jobs, j)
	l.bytes += len(j.msg)
	l.more.Signal()
	return true
}

// next waits for a job, and says whether the lane has room since it was taken. There is
// none when the lane is closed and empty.
func (l *lane) next() (j *job, opened bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.jobs) == 0 {
		if l.closed {
			return nil, false
		}
		l.more.Wait()
	}
	return l.takeLocked(0)
}

// drop takes out the job that is meant, unless a worker has it already, and says whether the
// lane has room since.
func (l *lane) drop(meant func(*job) bool) (j *job, opened bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.jobs, meant)
	if i < 0 {
		return nil, false
	}
	l.active--
	return l.takeLocked(i)
}

func (l *lane) takeLocked(i int) (j *job, opened bool) {
	was := l.hasRoomLocked()
	j = l.jobs[i]
	l.bytes -= len(j.msg)
	if i == 0 {
		l.jobs[0] = nil
		l.jobs = l.jobs[1:]
	} else {
		l.jobs = slices.Delete(l.jobs, i, i+1)
	}
	return j, !was && l.hasRoomLocked()
}

// ended notes that a worker is done with a job.
func (l *lane) ended() {
	l.mu.Lock()
	l.active--
	l.mu.Unlock()
}

// close ends the workers when no job is left.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.more.Broadcast()
	l.mu.Unlock()
}
