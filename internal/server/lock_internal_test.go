package server

import (
	"syscall"
	"testing"
)

// TestFolderGivenBack: a data folder that is given back is free for the next server at
// once, though a child that is just being started has the file of its lock open, too.
func TestFolderGivenBack(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(lock.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	if err := lock.release(); err != nil {
		t.Fatal(err)
	}
	again, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.release(); err != nil {
		t.Error(err)
	}
}
