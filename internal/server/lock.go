package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/parley-project/parley"
)

// folderLock keeps a second server off a data folder. The operating system
// frees it when the process ends, however it ends.
type folderLock struct{ file *os.File }

// lockFolder takes the lock of a data folder. The error has code conflict and
// names the process that holds it.
func lockFolder(dir string) (*folderLock, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		if err = file.Truncate(0); err == nil {
			_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
		if err == nil {
			return &folderLock{file: file}, nil
		}
	}
	holder, _ := io.ReadAll(io.LimitReader(file, 32))
	closed := file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, parley.Errorf(parley.CodeConflict,
			"another parley (pid %s) is running on the data folder %s; stop it, or choose another folder with --data",
			strings.TrimSpace(string(holder)), dir)
	}
	return nil, errors.Join(fmt.Errorf("lock data folder %s: %w", dir, err), closed)
}

// release gives the folder back at once. To close the file alone does not: a child that
// is being started has it open, too, until it runs its own program.
func (l *folderLock) release() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}
