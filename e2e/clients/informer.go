package main

import (
	"context"
	"errors"
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// informOfSteps syncs a shared informer over objects that are there, changes them, and prints what the handlers are told.
func informOfSteps(ctx context.Context, clients *clients, kind, namespace string) error {
	objects := clients.typed.CoreV1().ConfigMaps(namespace)
	for i := range 5 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("before-%d", i)}}
		if _, err := objects.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	informer, err := newInformer(clients, kind, namespace, nil)
	if err != nil {
		return err
	}
	// Bounded by what this scenario does: five initial objects and the few steps below.
	told := make(chan string, 64)
	tell := func(event string, object any) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			panic(err)
		}
		told <- fmt.Sprintf("%s %s %v", event, accessor.GetName(), accessor.GetLabels())
	}
	handlers := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell("add", object) },
		UpdateFunc: func(_, object any) { tell("update", object) },
		DeleteFunc: func(object any) { tell("delete", object) },
	}
	registration, err := informer.AddEventHandler(handlers)
	if err != nil {
		return err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return errors.New("the informer never synced")
	}
	initial := make([]string, 5)
	for i := range initial {
		if initial[i], err = next(ctx, told); err != nil {
			return err
		}
	}
	sort.Strings(initial)
	say("synced", initial)

	steps := []struct {
		name string
		do   func() error
	}{
		{"create", func() error {
			_, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
			return err
		}},
		{"patch", func() error {
			_, err := objects.Patch(ctx, "after", types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"yes"}}}`), metav1.PatchOptions{})
			return err
		}},
		{"delete", func() error { return objects.Delete(ctx, "after", metav1.DeleteOptions{}) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return err
		}
		event, err := next(ctx, told)
		if err != nil {
			return fmt.Errorf("after %s: %w", step.name, err)
		}
		say(step.name, event)
	}
	keys := informer.GetStore().ListKeys()
	say("in the store", len(keys))
	return objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

func newInformer(clients *clients, kind, namespace string, tweak func(*metav1.ListOptions)) (cache.SharedIndexInformer, error) {
	ofTyped := func(client kubernetes.Interface) cache.SharedIndexInformer {
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), informers.WithTweakListOptions(tweak))
		return factory.Core().V1().ConfigMaps().Informer()
	}
	switch kind {
	case "typed":
		return ofTyped(clients.typed), nil
	case "json":
		return ofTyped(clients.json), nil
	case "dynamic":
		return dynamicinformer.NewFilteredDynamicSharedInformerFactory(clients.dynamic, 0, namespace, tweak).ForResource(configMapResource).Informer(), nil
	case "metadata":
		return metadatainformer.NewFilteredSharedInformerFactory(clients.metadata, 0, namespace, tweak).ForResource(configMapResource).Informer(), nil
	}
	return nil, fmt.Errorf("no client %q: say typed, json, dynamic or metadata", kind)
}

func next(ctx context.Context, told <-chan string) (string, error) {
	select {
	case event := <-told:
		return event, nil
	case <-ctx.Done():
		return "", errors.New("the informer was told nothing")
	}
}
