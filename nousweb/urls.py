"""The table of contents: every address there is."""

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path

from sessions import views
from sessions.api import api

urlpatterns = [
    path("favicon.ico", views.favicon),
    path("healthz", views.healthz, name="healthz"),
    path("sign-in/", auth.LoginView.as_view(template_name="sign_in.html"), name="login"),
    path("sign-out/", auth.LogoutView.as_view(), name="logout"),
    path("admin/", admin.site.urls),
    path("api/v1/", api.urls),
    path("", include("sessions.urls")),
]
